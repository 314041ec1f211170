// `ingot reason`: test-time compute on problems of environments or on a question: samples, majority,
// Markovian RSA, round by round; and rows that teach aggregation.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/inference.h"
#include "apps/text_io.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/invocation.h"
#include "base/log.h"
#include "base/terminal_text.h"
#include "environments/answer.h"
#include "environments/rows.h"
#include "eval/metrics.h"
#include "reason/training_rows.h"
#include "report/reason_results.h"
#include "report/run_record.h"
#include "report/table.h"

namespace ingot {
namespace {

struct ReasonArguments : InferenceArguments {
  std::vector<std::string> mix;
  std::string prompt, compaction = "tail", aggregate, rows, form = "messages", reply = "choice", record, name;
  reason::RsaOptions rsa;
  reason::AggregationOptions rows_options;
  int64_t problems = 20, at_once = 16, problem_seed = 0;
  bool no_think = false;
  JsonOption json;
};

/// The session's parts that reason, and what they are asked with.
struct OpenReasoner {
  Session session;
  std::unique_ptr<Engine> engine;
  reason::Reasoner reasoner;

  explicit OpenReasoner(const ReasonArguments& o) : session(open_session(o)), engine(session.engine()) {
    if (!session.chat_template)
      throw Error("the model has no chat template, so it cannot be asked in a conversation",
                  "give --chat-template (chatml-think), or a model that was trained on conversations");
    chat::require_tokens(*session.chat_template, session.tokenizer);
    reasoner = {engine.get(), &*session.chat_template, session.control.end, {}};
    for (const int32_t end : chat::end_ids(*session.chat_template, session.tokenizer))
      reasoner.stop_ids.push_back(end);
    if (!o.aggregate.empty()) reasoner.aggregate = {real_file_system().read(o.aggregate), o.aggregate};
  }
};

reason::RsaOptions rsa_options(const ReasonArguments& o) {
  reason::RsaOptions rsa = o.rsa;
  rsa.compaction = enum_from<reason::Compaction>(o.compaction, "--compaction");
  rsa.sampling = o.request.sampling;
  rsa.sampling.seed = static_cast<uint64_t>(o.seed);
  if (o.no_think) rsa.enable_thinking = false;
  if (!o.rows.empty()) rsa.rounds = 0;
  return rsa;
}

/// What a round's rollouts came to, a number for each problem.
struct RoundScores {
  std::vector<double> right, majority, any, decoded;
  double picked = 0,
         could_pick = 0;  ///< rollouts that saw a right candidate, and of them those that are right
  int64_t longest_prompt = 0;
};

class MeasuredProblems {
 public:
  MeasuredProblems(const environments::EnvironmentPointer& environment, int64_t rounds)
      : environment_(environment), rounds_(static_cast<size_t>(rounds + 1)) {}

  void add(const environments::Problem& problem, const reason::RsaResult& result) {
    std::vector<double> before;
    double decoded = 0;
    prompt_bound_ = std::max(prompt_bound_, result.prompt_bound);
    for (size_t t = 0; t < result.rounds.size(); ++t) {
      const reason::RsaRound& round = result.rounds[t];
      RoundScores& scores = rounds_[t];
      std::vector<double> right;
      std::vector<std::string> votes;
      std::vector<double> right_votes;
      for (const reason::Rollout& rollout : round.rollouts) {
        const environments::Verdict verdict = environment_->judge(problem, rollout.reply);
        if (verdict.infrastructure) throw Error(verdict.note);
        right.push_back(verdict.reward);
        if (!verdict.answer.empty()) votes.push_back(verdict.answer), right_votes.push_back(verdict.reward);
      }
      scores.right.push_back(mean(right));
      scores.any.push_back(*std::max_element(right.begin(), right.end()));
      scores.majority.push_back(
          votes.empty() ? 0 : right_votes[static_cast<size_t>(&majority(votes) - votes.data())]);
      decoded += static_cast<double>(round.decoded);
      scores.decoded.push_back(decoded);
      scores.longest_prompt = std::max(scores.longest_prompt, round.longest_prompt);
      for (size_t j = 0; j < round.drawn.size(); ++j)
        if (std::any_of(round.drawn[j].begin(), round.drawn[j].end(),
                        [&](int64_t i) { return before[static_cast<size_t>(i)] >= 1; }))
          scores.could_pick += 1, scores.picked += right[j];
      before = std::move(right);
    }
  }

  ReasonResult result(const ReasonArguments& o, const std::string& problems) const {
    ReasonResult r{.name = o.name, .problems = problems, .count = o.problems};
    r.population = o.rsa.population, r.candidates = o.rsa.candidates;
    r.budget = o.rsa.budget, r.tail = o.rsa.tail, r.compaction = o.compaction;
    r.prompt_bound = prompt_bound_;
    for (const RoundScores& s : rounds_) {
      ReasonRound& round = r.rounds.emplace_back();
      round.right = mean(s.right), round.majority = mean(s.majority), round.any = mean(s.any);
      round.right_error = mean_error(s.right), round.majority_error = mean_error(s.majority);
      if (s.could_pick > 0) round.picked = s.picked / s.could_pick;
      round.tokens = mean(s.decoded), round.longest_prompt = s.longest_prompt;
    }
    return r;
  }

 private:
  environments::EnvironmentPointer environment_;
  std::vector<RoundScores> rounds_;
  int64_t prompt_bound_ = 0;
};

void add_rounds(Table& table, const std::string& environment, const ReasonResult& result) {
  for (size_t t = 0; t < result.rounds.size(); ++t) {
    const ReasonRound& r = result.rounds[t];
    const auto cell = [](std::optional<double> value) { return value ? Cell(*value) : Cell(); };
    table.add({environment, static_cast<int64_t>(t), result.count, r.right, cell(r.right_error), r.majority,
               cell(r.majority_error), r.any, cell(r.picked), r.tokens, r.longest_prompt});
  }
}

Table rounds_table() {
  const auto column = [](const char* title, const char* field, const char* format = "{:.1f}",
                         double scale = 100) {
    Column c = number(title, 1, scale);
    c.field = field, c.format = format;
    return c;
  };
  return Table({words("environment", "environment"), column("round", "round", "{}", 1),
                column("problems", "problems", "{}", 1), column("right %", "right"),
                column("±", "right_stderr"), column("majority %", "majority"), column("±", "majority_stderr"),
                column("any %", "any"), column("picked %", "picked"), column("tokens", "tokens", "{:.0f}", 1),
                column("longest prompt", "longest_prompt", "{}", 1)});
}

/// Problems in order, some at once, each with its result.
template <class Visit>
void reason_about(const ReasonArguments& o, const OpenReasoner& open, const environments::ProblemMix& mix,
                  const Visit& visit) {
  const reason::RsaOptions rsa = rsa_options(o);
  const uint64_t seed =
      static_cast<uint64_t>(o.problem_seed) + (o.rows.empty() ? environments::kHeldOutSeeds : 0);
  for (int64_t first = 0; first < o.problems; first += o.at_once) {
    log::set_status(fmt::format("{}: {} of {} problems", mix.environment->name(), first, o.problems));
    std::vector<environments::Problem> problems;
    std::vector<reason::ReasonProblem> asked;
    for (int64_t i = first; i < std::min(o.problems, first + o.at_once); ++i) {
      const int64_t difficulty = mix.difficulty.least + i % (mix.difficulty.most - mix.difficulty.least + 1);
      problems.push_back(mix.environment->make(seed, static_cast<uint64_t>(i), difficulty));
      asked.push_back({problems.back().prompt, hash64(problems.back().id())});
    }
    const std::vector<reason::RsaResult> results = reason::markovian_rsa(open.reasoner, asked, rsa);
    for (size_t i = 0; i < results.size(); ++i) visit(problems[i], results[i]);
  }
  log::set_status("");
}

void measure_reasoning(const ReasonArguments& o, const OpenReasoner& open,
                       const std::vector<environments::ProblemMix>& mixes) {
  Table table = rounds_table();
  int64_t bound = 0;
  for (size_t i = 0; i < mixes.size(); ++i) {
    MeasuredProblems measured(mixes[i].environment, o.rsa.rounds);
    reason_about(o, open, mixes[i],
                 [&](const auto& problem, const auto& result) { measured.add(problem, result); });
    const ReasonResult result = measured.result(o, o.mix[i]);
    add_rounds(table, mixes[i].environment->name(), result);
    bound = std::max(bound, result.prompt_bound);
    if (!o.record.empty()) record_reason_result(real_file_system(), o.record, result);
  }
  nlohmann::ordered_json json = {
      {"model", open.session.path}, {"population", o.rsa.population}, {"candidates", o.rsa.candidates},
      {"rounds", o.rsa.rounds},     {"budget", o.rsa.budget},         {"tail", o.rsa.tail},
      {"compaction", o.compaction}, {"prompt_bound", bound},          {"results", table.json()}};
  std::string text = table.text();
  if (bound > 0)
    text += fmt::format("prompts with {} have at most {} tokens\n", count_of(o.rsa.candidates, "candidate"),
                        bound);
  if (!o.record.empty())
    text += fmt::format("kept in {}; `ingot report {}` shows it\n", o.record, shell_word(o.record));
  o.json.print(text, json_text(json, 2));
}

void write_aggregation_rows(const ReasonArguments& o, const OpenReasoner& open,
                            const std::vector<environments::ProblemMix>& mixes) {
  reason::AggregationOptions options = o.rows_options;
  options.form = enum_from<reason::AggregationForm>(o.form, "--form");
  options.reply = enum_from<reason::AggregationReply>(o.reply, "--reply");
  options.seed = static_cast<uint64_t>(o.seed);
  std::string text;
  int64_t count = 0;
  for (const environments::ProblemMix& mix : mixes)
    reason_about(o, open, mix, [&](const auto& problem, const auto& result) {
      for (const std::string& row :
           reason::aggregation_rows(open.reasoner.aggregate, open.session.tokenizer, *mix.environment,
                                    problem, result.last(), rsa_options(o), options))
        text += row + "\n", ++count;
    });
  write_file_atomically(real_file_system(), o.rows, text);
  std::cout << fmt::format("{}: {} rows of {} problems\n", o.rows, count,
                           o.problems * static_cast<int64_t>(mixes.size()));
}

/// The answer that most of the last population gives.
void answer_question(const ReasonArguments& o, const OpenReasoner& open) {
  chat::Conversation conversation;
  conversation.messages = {chat::text_message("user", o.prompt)};
  const reason::ReasonProblem asked{conversation, hash64(o.prompt)};
  const reason::RsaResult result = reason::markovian_rsa(open.reasoner, {&asked, 1}, rsa_options(o)).front();
  std::vector<std::string> votes;
  nlohmann::ordered_json rounds = nlohmann::ordered_json::array();
  for (const reason::RsaRound& round : result.rounds) {
    nlohmann::ordered_json answers = nlohmann::ordered_json::array();
    for (const reason::Rollout& r : round.rollouts)
      answers.push_back({{"text", r.text}, {"tokens", r.decoded}});
    rounds.push_back({{"rollouts", answers},
                      {"drawn", round.drawn},
                      {"decoded", round.decoded},
                      {"longest_prompt", round.longest_prompt}});
  }
  for (const reason::Rollout& r : result.last())
    if (const auto answer = environments::final_answer(r.reply.content.value_or("")); !answer.text.empty())
      votes.push_back(answer.text);
  const std::string best = votes.empty() ? "" : majority(votes);
  const auto count = std::count(votes.begin(), votes.end(), best);
  o.json.print(
      text_for(STDOUT_FILENO, votes.empty() ? "no rollout gives an answer" : best) +
          fmt::format("\n({} of {} rollouts, {} tokens)\n", count, result.last().size(), result.decoded()),
      json_text({{"answer", best}, {"votes", count}, {"decoded", result.decoded()}, {"rounds", rounds}}, 2));
}

void reason_command(const ReasonArguments& o, bool has_reply) {
  if (o.prompt.empty() == o.mix.empty())
    throw UsageError("problems or a question are missing",
                     "give environments, as sort:3-8, or --prompt, one of the two");
  if (!o.prompt.empty() && !o.rows.empty())
    throw UsageError("--rows needs problems that are judged", "give environments");
  if (has_reply && (o.rows.empty() || o.form == "prompts"))
    throw UsageError("--reply is of rows that have a teacher's replies", "give --rows, and --form messages");
  if (o.record.empty() != o.name.empty())
    throw UsageError("--record and --name go together",
                     "name what is measured, as --record runs/a --name trained");
  if (!o.record.empty() && (!o.prompt.empty() || !o.rows.empty()))
    throw UsageError("--record keeps what is measured on environments", "give environments, without --rows");
  if (!o.record.empty())
    read_run_record(real_file_system(), o.record);  // its faults are found before the work
  std::vector<environments::ProblemMix> mixes;
  for (const std::string& text : o.mix) mixes.push_back(environments::problem_mix(text));
  reason::validate(rsa_options(o));
  const OpenReasoner open(o);
  if (!o.prompt.empty()) return answer_question(o, open);
  if (!o.rows.empty()) return write_aggregation_rows(o, open, mixes);
  measure_reasoning(o, open, mixes);
}

}  // namespace

void add_rsa_options(CLI::App& c, reason::RsaOptions& rsa, std::string& compaction) {
  c.add_option("--population", rsa.population, "rollouts of a round (N)")
      ->check(in(between(1, kMaxSamples)))
      ->capture_default_str();
  c.add_option("--candidates", rsa.candidates, "tails that a rollout of a later round reads (C)")
      ->check(in(between(1, kMaxSamples)))
      ->capture_default_str();
  c.add_option("--rounds", rsa.rounds, "rounds of aggregation (T); 0: samples alone")
      ->check(in(between(0, 1000)))
      ->capture_default_str();
  c.add_option("--budget", rsa.budget, "tokens of thinking of a rollout (beta)")
      ->check(in(between(1, 0x1p24)))
      ->capture_default_str();
  c.add_option("--tail", rsa.tail, "tokens of a rollout that the next round sees (tau)")
      ->check(in(between(1, 0x1p24)))
      ->capture_default_str();
  c.add_option("--answer-tokens", rsa.answer_tokens, "tokens behind the thinking")
      ->check(in(between(1, 0x1p24)))
      ->capture_default_str();
  c.add_option("--compaction", compaction, "what the next round sees: tail, pacore (the answer) or hybrid")
      ->capture_default_str();
}

void add_reply_option(CLI::App& c, std::string& reply) {
  c.add_option("--reply", reply,
               "of rows for SFT: choice (which candidate is right) or solution (the teacher's, whole)")
      ->capture_default_str();
}

void add_reason_command(CLI::App& app, int& code) {
  auto o = std::make_shared<ReasonArguments>();
  CLI::App* c = app.add_subcommand(
      "reason", "spends tokens on problems or a question: samples, majority, Markovian RSA");
  add_model_options(c, *o);
  add_chat_template_option(c, *o);
  c->add_option("environments", o->mix, "held-out problems: NAME, NAME:DIFFICULTY or NAME:LEAST-MOST");
  c->add_option("--prompt", o->prompt, "a question instead: prints the answer that most rollouts give");
  c->add_option("--problems", o->problems, "of each environment")
      ->check(in(between(1, 1e6)))
      ->capture_default_str();
  c->add_option("--problem-seed", o->problem_seed, "of the problems")
      ->check(in(between(0, 0x1p32 - 1)))
      ->capture_default_str();
  add_rsa_options(*c, o->rsa, o->compaction);
  SamplingOptions& s = o->request.sampling;
  c->add_option("--temperature", s.temperature, "sampling temperature")
      ->check(in(up_to(1e6)))
      ->capture_default_str();
  c->add_option("--top-p", s.top_p, "sample from the smallest set of tokens with this total probability")
      ->check(in(up_to(1)))
      ->capture_default_str();
  c->add_option("--seed", o->seed, "seed of the sampling")->check(in(up_to(0x1p63)))->capture_default_str();
  c->add_flag("--no-think", o->no_think, "the template's /no_think: answers without reasoning");
  c->add_option("--aggregate", o->aggregate,
                "Jinja file of the message that shows candidates; default: aggregate.jinja as shipped");
  c->add_option("--at-once", o->at_once, "problems that the engine has at once")
      ->check(in(between(1, 1e4)))
      ->capture_default_str();
  c->add_option("--rows", o->rows, "writes rows that teach aggregation to this file, from training problems");
  c->add_option("--form", o->form, "of --rows: messages (a teacher's replies, for SFT) or prompts (for RL)")
      ->capture_default_str();
  add_reply_option(*c, o->reply);
  c->add_option("--rows-per-problem", o->rows_options.rows, "of --rows")
      ->check(in(between(1, 1e4)))
      ->capture_default_str();
  c->add_option("--expert", o->rows_options.expert, "of --rows: share of candidates that the teacher writes")
      ->check(in(between(0, 1)))
      ->capture_default_str();
  c->add_option("--record", o->record, "keeps the result in this run's folder: its report shows it");
  c->add_option("--name", o->name, "of --record: what the report calls the model, as trained");
  add_json_option(*c, o->json);
  c->callback([o, c, &code] { reason_command(*o, c->count("--reply") > 0), code = 0; });
}

}  // namespace ingot
