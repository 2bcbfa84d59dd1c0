// What the tests of the direct protocol run on: every geometry of the backend, with both kinds of slots.
#pragma once

#include <string>
#include <vector>

#include "kernels/direct_job.h"

namespace kernel_tests {

inline std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const Geometry& geometry : kGeometries) {
    for (const bool self_validating : {false, true}) all.push_back({geometry, self_validating});
  }
  return all;
}

class OnEverySetting : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (const std::string why = unavailable(); !why.empty()) GTEST_SKIP() << why;
  }
};

#define MOEWAY_ON_EVERY_SETTING(suite)                                                                \
  INSTANTIATE_TEST_SUITE_P(Settings, suite, testing::ValuesIn(settings()), [](const auto& setting) {  \
    return name_of(setting.param.geometry) + (setting.param.self_validating ? "SelfValidating" : ""); \
  })

}  // namespace kernel_tests
