// Every target on every file of its corpus: what fuzzing has found once stays found, with any compiler.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "fuzz/target.h"

namespace moeway::fuzz {
namespace {

std::vector<std::filesystem::path> corpus_of(const std::string& target) {
  const std::filesystem::path folder = std::string(MOEWAY_SOURCE_DIR) + "/tests/fuzz/corpus/" + target;
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::is_directory(folder)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

class Replay : public testing::TestWithParam<Target> {};

TEST_P(Replay, BearsItsCorpus) {
  const std::vector<std::filesystem::path> files = corpus_of(GetParam().name);
  ASSERT_FALSE(files.empty()) << "tests/fuzz/corpus/" << GetParam().name << " has no files";
  for (const auto& path : files) {
    SCOPED_TRACE(path.string());
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    ASSERT_TRUE(file.good() || file.eof());
    std::printf("%s\n", path.filename().c_str());  // The last line names the file that ended the program.
    std::fflush(stdout);
    GetParam().run({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  }
}

TEST_P(Replay, BearsNothing) { GetParam().run({}); }

INSTANTIATE_TEST_SUITE_P(Targets, Replay, testing::ValuesIn(targets()),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace moeway::fuzz
