// See filters.h.
#include "eval/filters.h"

#include <algorithm>

#include "base/error.h"
#include "eval/python_text.h"

namespace ingot {

void FilterStep::validate(ConfigErrors& errors) const {
  if (function == FilterFunction::regex) {
    if (pattern.empty()) return errors.add("pattern", "must not be empty for a regex");
    try {
      const Pattern tried(pattern);
    } catch (const Error& e) {
      errors.add_text("pattern", e.what());
    }
  } else if (!pattern.empty()) {
    errors.add("pattern", "is for function = \"regex\" only");
  }
  if (open.empty() || close.empty()) errors.add("open", "open and close must not be empty");
}

void FilterConfig::validate(ConfigErrors& errors) const {
  if (name.empty() || name.find_first_of(",/\n") != name.npos)
    errors.add("name", "must not be empty nor hold a comma or slash, found '{}'", name);
}

Filter::Filter(FilterConfig config) : config_(std::move(config)) {
  for (const FilterStep& step : config_.steps) {
    patterns_.emplace_back();
    if (step.function == FilterFunction::regex) patterns_.back().emplace(step.pattern);
    if (step.function == FilterFunction::last_number) patterns_.back().emplace(R"(-?\d[\d,]*(?:\.\d+)?)");
  }
}

std::string without_reasoning(const std::string& text, const std::string& open, const std::string& close) {
  if (const size_t end = text.rfind(close); end != text.npos) {
    const std::string rest = text.substr(end + close.size());
    return rest.find(open) == rest.npos ? std::string(python_strip(rest)) : "";
  }
  return text.find(open) == text.npos ? text : "";
}

std::string Filter::apply(std::string answer) const {
  for (size_t i = 0; i < config_.steps.size(); ++i) {
    const FilterStep& step = config_.steps[i];
    switch (step.function) {
      case FilterFunction::strip_reasoning:
        answer = without_reasoning(answer, step.open, step.close);
        break;
      case FilterFunction::strip:
        answer = python_strip(answer);
        break;
      case FilterFunction::lower:
        std::transform(answer.begin(), answer.end(), answer.begin(),
                       [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
        break;
      case FilterFunction::regex:
      case FilterFunction::last_number: {
        const std::vector<std::string> found = patterns_[i]->find_all(answer);
        const auto n = static_cast<int64_t>(found.size());
        const int64_t wanted = step.function == FilterFunction::last_number ? -1 : step.select;
        const int64_t index = wanted < 0 ? n + wanted : wanted;
        const std::string chosen = index >= 0 && index < n ? found[static_cast<size_t>(index)] : "";
        answer = chosen.empty() ? step.fallback : python_strip(chosen);
        if (step.function == FilterFunction::last_number && !chosen.empty()) std::erase(answer, ',');
        break;
      }
    }
  }
  return answer;
}

}  // namespace ingot
