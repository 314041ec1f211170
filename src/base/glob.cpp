// See glob.h.
#include "base/glob.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

namespace ingot {
namespace {

/// Edit distance between a glob and a name, in which '*' stands for any run of characters at no cost.
int64_t glob_distance(std::string_view pattern, std::string_view name) {
  std::vector<int64_t> row(name.size() + 1), next(name.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (const char p : pattern) {
    next[0] = row[0] + (p == '*' ? 0 : 1);
    for (size_t j = 1; j <= name.size(); ++j)
      next[j] =
          p == '*'
              ? std::min(row[j], next[j - 1])
              : std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (p == name[j - 1] || p == '?' ? 0 : 1)});
    row.swap(next);
  }
  return row.back();
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string nearest_to_pattern(std::string_view pattern, const std::vector<std::string>& names) {
  std::vector<std::pair<int64_t, size_t>> ranked;
  for (size_t i = 0; i < names.size(); ++i) ranked.emplace_back(glob_distance(pattern, names[i]), i);
  std::sort(ranked.begin(), ranked.end());
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(3, ranked.size()); ++i)
    text += std::string(i ? ", '" : "'") + names[ranked[i].second] + "'";
  return text;
}

}  // namespace ingot
