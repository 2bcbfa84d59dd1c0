#include "cli/option_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

namespace moeway::cli {
namespace {

// "--" and a word that no option of `app` has, or a first word that is no command.
std::string misspelt(const CLI::App& app, const std::string& word) {
  const CLI::App* target = &app;
  for (const CLI::App* command : app.get_subcommands()) target = command;
  std::vector<std::string> names;
  if (word.starts_with("--")) {
    for (const CLI::Option* option : target->get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    const std::string name = word.substr(0, word.find('='));
    if (std::find(names.begin(), names.end(), name) != names.end()) return "";
    return nearest(name, names);
  }
  if (target != &app || word.starts_with("-")) return "";
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), word) != names.end()) return "";
  return nearest(word, names);
}

std::string commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return fmt::format("{}", fmt::join(names, ", "));
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row[b.size()];
}

}  // namespace

CLI::Validator whole_number(int64_t least, int64_t most) {
  return CLI::Validator(
      [least, most](std::string& text) {
        int64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most)
          return std::string();
        return fmt::format("'{}', expected a whole number from {} to {}", text, least, most);
      },
      "");
}

CLI::Validator real_number(double least, double most) {
  return CLI::Validator(
      [least, most](std::string& text) {
        double value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most)
          return std::string();
        return fmt::format("'{}', expected a number from {:g} to {:g}", text, least, most);
      },
      "");
}

int64_t milliseconds_of(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const char unit = error == std::errc() && end + 1 == text.data() + text.size() ? *end : ' ';
  const double seconds = unit == 's' ? 1 : unit == 'm' ? 60 : unit == 'h' ? 3600 : 0;
  constexpr double kMostSeconds = 1e9;
  return number > 0 && number * seconds <= kMostSeconds ? static_cast<int64_t>(std::ceil(number * seconds * 1000)) : 0;
}

CLI::Validator duration() {
  return CLI::Validator(
      [](std::string& text) {
        if (milliseconds_of(text) > 0) return std::string();
        return fmt::format("'{}', expected a length of time, as 90s, 10m or 1h", text);
      },
      "");
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

CLI::Validator list_of(CLI::Validator each) {
  const std::string description = each.get_description();
  return CLI::Validator(
      [each = std::move(each)](std::string& text) {
        for (std::string& word : split_list(text))
          if (std::string wrong = each(word); !wrong.empty()) return wrong;
        return std::string();
      },
      description.empty() ? "" : description + ",...");
}

std::string nearest(const std::string& word, const std::vector<std::string>& names) {
  std::string best;
  size_t best_distance = word.size() / 3 + 2;
  for (const std::string& name : names) {
    const size_t distance = edit_distance(word, name);
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

CLI::Validator one_of(std::vector<std::string> names) {
  const std::string list = fmt::format("{}", fmt::join(names, "|"));
  return CLI::Validator(
      [names = std::move(names), list](std::string& text) {
        if (std::find(names.begin(), names.end(), text) != names.end()) return std::string();
        const std::string near = nearest(text, names);
        return fmt::format("'{}', expected {}{}", text, list, near.empty() ? "" : " (did you mean '" + near + "'?)");
      },
      list);
}

std::string explain(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words) {
  std::string text = error.what();
  // The words that nothing took, in the order in which they were given.
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    text = fmt::format("not expected: {}", fmt::join(app.remaining(true), " "));
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && app.get_subcommands().empty())
    text = "expected a command: " + commands_of(app);
  for (const std::string& word : words)
    if (const std::string near = misspelt(app, word); !near.empty())
      return fmt::format("{}\n'{}': did you mean '{}'?", text, word, near);
  return text;
}

}  // namespace moeway::cli
