// See make_pairs.h.
#include "post/preference/make_pairs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "environments/environment.h"

namespace ingot {
namespace {

namespace envs = environments;
using PairJson = nlohmann::ordered_json;

constexpr int64_t kBatch = 64;  // problems whose answers are drawn together

struct PairAnswer {
  chat::Message message;
  double reward = 0;
  bool counts = false;
};

PairJson message_json(const chat::Message& m) {
  PairJson j = {{"role", m.role}, {"content", m.content.value_or("")}};
  if (m.reasoning_content && !m.reasoning_content->empty()) j["reasoning_content"] = *m.reasoning_content;
  return j;
}

/// Makes pairs of one call, a batch of problems at a time.
class PairMaker {
 public:
  PairMaker(const PairOptions& options, PairReport& report)
      : options_(options), report_(report), environment_(envs::find_environment(options.environment)) {
    const envs::DifficultyRange range = environment_->difficulty();
    if (options.easiest > options.hardest || options.easiest < range.least || options.hardest > range.most)
      throw Error(fmt::format("'{}' has difficulties {} to {}, asked for {} to {}", options.environment,
                              range.least, range.most, options.easiest, options.hardest),
                  "choose --difficulty within them");
  }
  envs::Problem problem(int64_t number) const {
    const int64_t levels = options_.hardest - options_.easiest + 1;
    return environment_->make(options_.seed, static_cast<uint64_t>(number),
                              options_.easiest + number % levels);
  }
  /// The answers of a model to some problems, judged.
  std::vector<std::vector<PairAnswer>> answers(TaskModel& model, const std::vector<envs::Problem>& problems) {
    std::vector<AnswerRequest> requests;
    for (const envs::Problem& p : problems) {
      std::vector<ChatTurn> turns;
      for (const chat::Message& m : p.prompt.messages) turns.push_back({m.role, m.content.value_or("")});
      const ChatPrompt prompt = model.chat_prompt(turns, options_.thinking);
      if (static_cast<int64_t>(prompt.ids.size()) + options_.sampling.max_tokens > model.context())
        throw Error(
            fmt::format("the prompt of {} has {} tokens; with {} of an answer the context of {} is full",
                        p.id(), prompt.ids.size(), options_.sampling.max_tokens, model.context()),
            "lower --tokens or the difficulty");
      requests.push_back({prompt.ids, p.number, prompt.in_thinking});
    }
    const auto texts = model.answer(requests, options_.sampling);
    std::vector<std::vector<PairAnswer>> judged(problems.size());
    for (size_t i = 0; i < problems.size(); ++i)
      for (const Answer& a : texts[i])
        judged[i].push_back(judge(problems[i], a, model.parse_answer(a.text, requests[i].in_thinking)));
    return judged;
  }
  void pair(const envs::Problem& problem, const std::vector<PairAnswer>& good,
            const std::vector<PairAnswer>& bad, const std::function<void(const std::string&)>& write) {
    const PairAnswer* best = nullptr;
    const PairAnswer* worst = nullptr;
    for (const PairAnswer& a : good)
      if (a.counts && (best == nullptr || a.reward > best->reward)) best = &a;
    for (const PairAnswer& a : bad)
      if (a.counts && (worst == nullptr || a.reward < worst->reward)) worst = &a;
    const bool same_model = &good == &bad;
    if (best == nullptr || worst == nullptr || best->message == worst->message ||
        (same_model ? best->reward <= worst->reward : best->reward < worst->reward)) {
      ++report_.all_equal;
      return;
    }
    PairJson row = {{"id", problem.id()}, {"prompt", PairJson::array()}};
    for (const chat::Message& m : problem.prompt.messages) row["prompt"].push_back(message_json(m));
    row["chosen"] = PairJson::array({message_json(best->message)});
    row["rejected"] = PairJson::array({message_json(worst->message)});
    row["rewards"] = {best->reward, worst->reward};
    ++report_.pairs;
    write(row.dump(-1, ' ', false, PairJson::error_handler_t::replace));
  }
  int64_t judged() const { return judged_; }

 private:
  PairAnswer judge(const envs::Problem& problem, const Answer& answer, const ParsedAnswer& parsed) {
    PairAnswer a{chat::text_message("assistant", parsed.content)};
    if (!parsed.reasoning.empty()) a.message.reasoning_content = parsed.reasoning;
    if (answer.cut || parsed.content.empty()) {
      ++report_.cut;
      return a;
    }
    const envs::Verdict verdict = environment_->judge(problem, a.message);
    if (verdict.infrastructure) {
      ++report_.not_judged;
      return a;
    }
    a.reward = verdict.reward;
    a.counts = true;
    ++judged_;
    report_.reward += verdict.reward;
    return a;
  }

  const PairOptions& options_;
  PairReport& report_;
  envs::EnvironmentPointer environment_;
  int64_t judged_ = 0;
};

}  // namespace

PairReport make_pairs(TaskModel& model, TaskModel* weak, const PairOptions& options,
                      const std::function<void(const std::string& row)>& write) {
  PairReport report;
  PairMaker maker(options, report);
  for (int64_t at = options.first; at < options.first + options.count; at += kBatch) {
    std::vector<envs::Problem> problems;
    for (int64_t n = at; n < std::min(at + kBatch, options.first + options.count); ++n)
      problems.push_back(maker.problem(n));
    const auto good = maker.answers(model, problems);
    const auto bad =
        weak != nullptr ? maker.answers(*weak, problems) : std::vector<std::vector<PairAnswer>>();
    for (size_t i = 0; i < problems.size(); ++i)
      maker.pair(problems[i], good[i], weak != nullptr ? bad[i] : good[i], write);
    report.problems += static_cast<int64_t>(problems.size());
  }
  if (maker.judged() > 0) report.reward /= static_cast<double>(maker.judged());
  return report;
}

}  // namespace ingot
