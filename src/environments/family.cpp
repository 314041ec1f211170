// See family.h: the list of built-in environments and their adaptor.
#include "environments/family.h"

#include <fmt/core.h>

#include "base/error.h"
#include "base/hash.h"
#include "environments/answer.h"

namespace ingot::environments {
namespace {

constexpr uint64_t kHeldOutShare = 8;  // one problem in so many
constexpr int kMostDrafts = 256;       // (7/8)^256 = 1e-15: only spaces of a few problems run out of them

class FamilyEnvironment : public Environment {
 public:
  explicit FamilyEnvironment(const Family& family)
      : family_(family), name_(family.name), about_(family.about) {}
  const std::string& name() const override { return name_; }
  const std::string& about() const override { return about_; }
  DifficultyRange difficulty() const override { return family_.difficulty; }

  Problem make(uint64_t seed, uint64_t number, int64_t difficulty) const override {
    const DifficultyRange& range = family_.difficulty;
    if (difficulty < range.least || difficulty > range.most)
      throw Error(fmt::format("difficulty {} of environment '{}'", difficulty, name_),
                  fmt::format("it has difficulties {} to {}", range.least, range.most));
    Draft draft;
    for (int attempt = 0; attempt < kMostDrafts; ++attempt) {
      const std::string stream = fmt::format("{}/{}@{}#{}", name_, number, difficulty, attempt);
      Dice dice(Random(seed, RandomPurpose::environment, hash64(stream)));
      draft = family_.make(dice, difficulty);
      if ((hash64(draft.prompt) % kHeldOutShare == 0) == (seed >= kHeldOutSeeds)) break;
    }
    return {name_,
            seed,
            number,
            difficulty,
            {{chat::text_message("user", draft.prompt)}, "", ""},
            draft.data.dump()};
  }

  std::optional<chat::Message> solve(const Problem& problem, const Random& random,
                                     TraceStyle style) const override {
    Dice dice(random);
    Trace trace = family_.solve(Json::parse(problem.data), dice, style);
    chat::Message reply = chat::text_message("assistant", std::move(trace.answer));
    if (style != TraceStyle::answer) reply.reasoning_content = std::move(trace.reasoning);
    return reply;
  }

 protected:
  Verdict verify(const Problem& problem, const std::string& answer) const override {
    Verdict verdict;
    verdict.reward = family_.right(Json::parse(problem.data), answer) ? 1 : 0;
    if (verdict.reward == 0) verdict.note = "the answer is wrong";
    for (const std::string& word : words_of(answer))
      verdict.answer += (verdict.answer.empty() ? "" : " ") + word;
    return verdict;
  }

 private:
  Family family_;
  std::string name_, about_;
};

}  // namespace

std::vector<Family> built_in_families() {
  std::vector<Family> all;
  for (const auto& families : {number_families(), search_families(), puzzle_families(), string_families(),
                               structure_families(), stack_families()})
    all.insert(all.end(), families.begin(), families.end());
  return all;
}

EnvironmentPointer make_environment(const Family& family) {
  return std::make_shared<FamilyEnvironment>(family);
}

bool same_words(const Json& data, const std::string& answer) {
  return words_of(answer) == words_of(data.at("answer").get<std::string>());
}

bool same_integer(const Json& data, const std::string& answer) {
  return integer_of(answer) == integer_of(data.at("answer").get<std::string>());
}

}  // namespace ingot::environments
