// See environment.h: judging, the registry, ids.
#include "environments/environment.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <map>
#include <mutex>

#include "base/config_node.h"
#include "base/error.h"
#include "base/file_system.h"
#include "environments/answer.h"
#include "environments/family.h"
#include "environments/row_environment.h"

namespace ingot::environments {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, EnvironmentMaker> makers;
  std::map<std::string, EnvironmentPointer> made;
  Registry() {
    for (const Family& family : built_in_families())
      makers[family.name] = [family] { return make_environment(family); };
  }
};

Registry& registry() {
  static Registry all;
  return all;
}

std::vector<std::string> names_in(const std::map<std::string, EnvironmentMaker>& makers) {
  std::vector<std::string> names;
  for (const auto& [name, maker] : makers) names.push_back(name);
  return names;
}

template <class Number>
bool read_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

std::string Problem::id() const {
  return fmt::format("{}/{}/{}@{}", environment, seed, number, difficulty);
}

Verdict Environment::judge(const Problem& problem, const chat::Message& reply) const {
  return judge(problem, reply.content.value_or(""));
}

Verdict Environment::judge(const Problem& problem, const std::string& content) const {
  INGOT_CHECK(problem.environment == name(), "{} judges a problem of {}", name(), problem.environment);
  FinalAnswer found = final_answer(content);
  Verdict verdict;
  if (found.text.empty()) {
    verdict.note = std::move(found.note);
  } else {
    // What a verifier throws says nothing about the reply: the caller counts it and leaves the sample out.
    try {
      verdict = verify(problem, found.text);
      if (!std::isfinite(verdict.reward)) {
        verdict.infrastructure = true;
        verdict.note = fmt::format("the verifier of {} gave the reward {}", problem.id(), verdict.reward);
      }
    } catch (const std::exception& error) {
      verdict = {};
      verdict.infrastructure = true;
      verdict.note = fmt::format("the verifier of {} failed: {}", problem.id(), error.what());
    }
    if (verdict.infrastructure) verdict.reward = 0;
    if (verdict.answer.empty()) verdict.answer = found.text;
  }
  // Where another environment has judged, they are there.
  if (!verdict.parts.empty() && verdict.parts.front().name == "answered") return verdict;
  verdict.parts.insert(verdict.parts.begin(), {{"answered", verdict.answer.empty() ? 0.0 : 1.0},
                                               {"correct", verdict.reward >= 1 ? 1.0 : 0.0}});
  return verdict;
}

void register_environment(const std::string& name, EnvironmentMaker maker) {
  if (name.empty() || name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != name.npos)
    throw Error(fmt::format("an environment cannot be named '{}'", name),
                "names have lower-case letters, digits and _ only");
  const std::lock_guard lock(registry().mutex);
  if (!registry().makers.emplace(name, std::move(maker)).second)
    throw Error(fmt::format("there is an environment '{}' already", name), "give another name");
}

std::vector<std::string> environment_names() {
  const std::lock_guard lock(registry().mutex);
  return names_in(registry().makers);
}

EnvironmentPointer find_environment(const std::string& name) {
  EnvironmentMaker maker;
  std::vector<std::string> names;
  {
    const std::lock_guard lock(registry().mutex);
    if (const auto made = registry().made.find(name); made != registry().made.end()) return made->second;
    if (const auto found = registry().makers.find(name); found != registry().makers.end())
      maker = found->second;
    names = names_in(registry().makers);
  }
  EnvironmentPointer made;
  if (maker) {
    made = maker();
  } else if (name.ends_with(".jsonl")) {
    made = row_environment(real_file_system(), name);
  } else {
    const std::string nearest = nearest_name(name, names);
    throw Error(
        fmt::format("there is no environment '{}'", name),
        nearest.empty() ? "`ingot environment list` shows them" : fmt::format("did you mean '{}'?", nearest));
  }
  const std::lock_guard lock(registry().mutex);
  return registry().made.emplace(name, std::move(made)).first->second;
}

Problem problem_of(const std::string& id) {
  const size_t at = id.rfind('@'), number = id.rfind('/', at),
               seed = number == 0 ? id.npos : id.rfind('/', number - 1);
  uint64_t s = 0, n = 0;
  int64_t d = 0;
  const std::string_view text = id;
  if (at == id.npos || number == id.npos || seed == id.npos || seed == 0 ||
      !read_number(text.substr(seed + 1, number - seed - 1), s) ||
      !read_number(text.substr(number + 1, at - number - 1), n) || !read_number(text.substr(at + 1), d))
    throw Error(fmt::format("'{}' is no id of a problem", id), "ids are ENVIRONMENT/SEED/NUMBER@DIFFICULTY");
  return find_environment(id.substr(0, seed))->make(s, n, d);
}

}  // namespace ingot::environments
