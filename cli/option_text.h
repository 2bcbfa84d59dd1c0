// Checks of option values whose messages say what was given and what was expected.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace moeway::cli {

// A whole number from `least` to `most`.
CLI::Validator whole_number(int64_t least, int64_t most);
// A number from `least` to `most`.
CLI::Validator real_number(double least, double most);
// A length of time, as 90s, 10m or 1.5h.
CLI::Validator duration();
// Of what duration() accepts.
int64_t milliseconds_of(const std::string& text);

// Values separated by commas, each of which `each` accepts; the words of a message are those of `each`.
CLI::Validator list_of(CLI::Validator each);
std::vector<std::string> split_list(const std::string& text);

template <class T>
using Names = std::vector<std::pair<std::string, T>>;

template <class T>
std::vector<std::string> words_of(const Names<T>& names) {
  std::vector<std::string> words;
  for (const auto& [name, unused] : names) words.push_back(name);
  return words;
}

// The one of `names` that is nearest to `word`, for "did you mean"; "" if none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& names);

CLI::Validator one_of(std::vector<std::string> names);

// One of the names; `value` becomes what belongs to it.
template <class T>
CLI::Option* add_choice(CLI::App& app, const std::string& flag, T& value, const Names<T>& names,
                        const std::string& text) {
  return app
      .add_option_function<std::string>(
          flag,
          [&value, names](const std::string& given) {
            for (const auto& [name, meaning] : names)
              if (name == given) value = meaning;
          },
          text)
      ->check(one_of(words_of(names)));
}

// One or more of the names, separated by commas; `values` becomes what belongs to them, in the order given.
template <class T>
CLI::Option* add_choices(CLI::App& app, const std::string& flag, std::vector<T>& values, const Names<T>& names,
                         const std::string& text) {
  return app
      .add_option_function<std::string>(
          flag,
          [&values, names](const std::string& given) {
            values.clear();
            for (const std::string& word : split_list(given))
              for (const auto& [name, meaning] : names)
                if (name == word) values.push_back(meaning);
          },
          text)
      ->check(list_of(one_of(words_of(names))));
}

// Whole numbers from `least` to `most`, separated by commas.
template <class T>
CLI::Option* add_numbers(CLI::App& app, const std::string& flag, std::vector<T>& values, int64_t least, int64_t most,
                         const std::string& text) {
  return app
      .add_option_function<std::string>(
          flag,
          [&values](const std::string& given) {
            values.clear();
            for (const std::string& word : split_list(given)) values.push_back(static_cast<T>(std::stoll(word)));
          },
          text)
      ->check(list_of(whole_number(least, most)));
}

// What CLI11 says of a mistake, with a hint where a word looks misspelt.
std::string explain(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words);

}  // namespace moeway::cli
