// See run_task.h.
#include "eval/run_task.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "eval/environment_task.h"
#include "eval/instructions.h"
#include "eval/metrics.h"
#include "eval/requests.h"
#include "eval/sha256.h"
#include "eval/think_switch.h"

namespace ingot {
namespace {

constexpr size_t kRowsAtOnce = 256;  // requests wait in the engine; their results are kept

/// Values by metric and filter, in the order of their first appearance.
class ScoreBook {
 public:
  void add(const std::string& metric, const std::string& filter, double value) {
    values_of(metric, filter).push_back(value);
  }
  void add_weighted(const std::string& metric, double value, double weight) {
    values_of(metric, "none");
    weighted_[metric].emplace_back(value, weight);
  }
  std::vector<MetricValue> values() const {
    std::vector<MetricValue> out;
    for (const Entry& e : entries_) {
      MetricValue v{e.metric, e.filter, 0, {}};
      if (e.metric == "bits_per_byte")
        v.value = bits_per_unit(weighted_.at(e.metric));
      else if (weighted_.contains(e.metric))
        v.value = weighted_perplexity(weighted_.at(e.metric));
      else if (e.metric == "perplexity")
        v.value = perplexity(e.values), v.error = bootstrapped_perplexity_error(e.values);
      else
        v.value = mean(e.values), v.error = mean_error(e.values);
      // The harness gives no error for a mean over instructions, which are not independent.
      if (e.metric.starts_with("inst_level")) v.error.reset();
      out.push_back(std::move(v));
    }
    return out;
  }

 private:
  struct Entry {
    std::string metric, filter;
    std::vector<double> values;
  };
  std::vector<double>& values_of(const std::string& metric, const std::string& filter) {
    for (Entry& e : entries_)
      if (e.metric == metric && e.filter == filter) return e.values;
    return entries_.emplace_back(Entry{metric, filter, {}}).values;
  }
  std::vector<Entry> entries_;
  std::map<std::string, std::vector<std::pair<double, double>>> weighted_;
};

/// The parts of a record that all kinds have, in the harness's order.
TaskJson record_of(const Task& task, size_t row, const std::string& target, TaskJson arguments,
                   TaskJson answers, TaskJson filtered, const std::string& filter, const TaskJson& metrics) {
  TaskJson names = TaskJson::array();
  for (auto it = metrics.begin(); it != metrics.end(); ++it) names.push_back(it.key());
  TaskJson numbered = TaskJson::object();
  for (size_t i = 0; i < arguments.size(); ++i) {
    TaskJson one = TaskJson::object();
    for (size_t j = 0; j < arguments[i].size(); ++j) one[fmt::format("arg_{}", j)] = arguments[i][j];
    numbered[fmt::format("gen_args_{}", i)] = std::move(one);
  }
  const std::string prompt = arguments.at(0).at(0).get<std::string>();
  TaskJson record = {{"doc_id", row},
                     {"doc", task.rows()[row]},
                     {"target", target},
                     {"arguments", std::move(numbered)},
                     {"resps", std::move(answers)},
                     {"filtered_resps", std::move(filtered)},
                     {"filter", filter},
                     {"metrics", std::move(names)},
                     {"doc_hash", sha256_hex(python_json(task.rows()[row], 2))},
                     {"prompt_hash", sha256_hex(prompt)},
                     {"target_hash", sha256_hex(target)}};
  record.update(metrics);
  return record;
}

TaskJson score_text(const ContinuationScore& s) {
  return TaskJson::array({python_float(s.logprob), s.greedy ? "True" : "False"});
}

class TaskRun {
 public:
  TaskRun(const Task& task, TaskModel& model, const TaskProgress& progress)
      : task_(task), config_(task.config()), model_(model), progress_(progress), comparison_(task.config()) {
    for (const FilterConfig& f : config_.filters) filters_.emplace_back(f);
  }

  TaskResult run() {
    const size_t rows = task_.rows().size();
    result_.rows = static_cast<int64_t>(rows);
    for (size_t first = 0; first < rows; first += kRowsAtOnce) {
      if (progress_) progress_(static_cast<int64_t>(first), result_.rows);
      const size_t end = std::min(rows, first + kRowsAtOnce);
      switch (config_.kind) {
        case TaskKind::choice:
          choose(first, end);
          break;
        case TaskKind::cloze:
          predict(first, end);
          break;
        case TaskKind::perplexity:
          measure(first, end);
          break;
        case TaskKind::generation:
          generate(first, end);
          break;
      }
    }
    result_.values = book_.values();
    if (config_.kind == TaskKind::generation) finish_generation();
    return std::move(result_);
  }

 private:
  bool wants(const char* metric) const {
    return std::find(config_.metrics.begin(), config_.metrics.end(), metric) != config_.metrics.end();
  }
  void count(const TaskJson& metrics, const std::string& filter = "none") {
    for (auto it = metrics.begin(); it != metrics.end(); ++it)
      for (const TaskJson& v : it->is_array() ? *it : TaskJson::array({*it}))
        book_.add(it.key(), filter, v.is_boolean() ? (v.get<bool>() ? 1.0 : 0.0) : v.get<double>());
  }

  void choose(size_t first, size_t end) {
    struct Question {
      std::string context;
      std::vector<std::string> choices;
      size_t at;
    };
    std::vector<Question> questions;
    std::vector<ScoreRequest> requests;
    const bool pmi = wants("acc_mutual_info");
    for (size_t i = first; i < end; ++i) {
      Question q{task_.context(i), task_.choices(i), requests.size()};
      for (int free = 0; free <= (pmi ? 1 : 0); ++free)
        for (const std::string& c : q.choices)
          requests.push_back(request(free ? "" : q.context, config_.delimiter + c, i));
      questions.push_back(std::move(q));
    }
    const std::vector<ContinuationScore> scores = model_.score(requests);
    for (size_t i = first; i < end; ++i) {
      const Question& q = questions[i - first];
      choice_row(i, q.context, q.choices, std::span(scores).subspan(q.at, q.choices.size() * (pmi ? 2 : 1)));
    }
  }

  void choice_row(size_t row, const std::string& context, const std::vector<std::string>& choices,
                  std::span<const ContinuationScore> scores) {
    const size_t gold = task_.gold(row), n = choices.size();
    const auto best = [&](const auto& value) {  // the first of equals, as argmax
      size_t found = 0;
      for (size_t c = 1; c < n; ++c)
        if (value(c) > value(found)) found = c;
      return found == gold ? 1.0 : 0.0;
    };
    TaskJson metrics = TaskJson::object();
    for (const std::string& name : config_.metrics) {
      if (name == "acc") metrics[name] = best([&](size_t c) { return scores[c].logprob; });
      if (name == "acc_norm")
        metrics[name] =
            best([&](size_t c) { return scores[c].logprob / static_cast<double>(characters(choices[c])); });
      if (name == "acc_bytes")
        metrics[name] =
            best([&](size_t c) { return scores[c].logprob / static_cast<double>(choices[c].size()); });
      if (name == "acc_mutual_info")
        metrics[name] = best([&](size_t c) { return scores[c].logprob - scores[n + c].logprob; });
    }
    TaskJson arguments = TaskJson::array(), answers = TaskJson::array(), filtered = TaskJson::array();
    for (size_t c = 0; c < scores.size(); ++c) {
      arguments.push_back({c < n ? context : "", config_.delimiter + choices[c % n]});
      answers.push_back(TaskJson::array({score_text(scores[c])}));
      filtered.push_back(score_text(scores[c]));
    }
    count(metrics);
    result_.samples.push_back(record_of(task_, row, task_.target_text(row), std::move(arguments),
                                        std::move(answers), std::move(filtered), "none", metrics));
  }

  void predict(size_t first, size_t end) {
    std::vector<ScoreRequest> requests;
    for (size_t i = first; i < end; ++i)
      requests.push_back(request(task_.context(i), config_.delimiter + task_.target_text(i), i));
    const std::vector<ContinuationScore> scores = model_.score(requests);
    for (size_t i = first; i < end; ++i) {
      const ContinuationScore& s = scores[i - first];
      TaskJson metrics = TaskJson::object();
      if (wants("perplexity")) metrics["perplexity"] = s.logprob;
      if (wants("acc")) metrics["acc"] = s.greedy ? 1 : 0;
      count(metrics);
      const std::string target = config_.delimiter + task_.target_text(i);
      result_.samples.push_back(record_of(task_, i, target,
                                          TaskJson::array({TaskJson::array({task_.context(i), target})}),
                                          TaskJson::array({TaskJson::array({score_text(s)})}),
                                          TaskJson::array({score_text(s)}), "none", metrics));
    }
  }

  void measure(size_t first, size_t end) {
    std::vector<ScoreRequest> requests;
    std::vector<size_t> of_row;
    for (size_t i = first; i < end; ++i)
      for (ScoreRequest& r : window_requests(model_, task_.target_text(i), config_.window)) {
        requests.push_back(std::move(r));
        of_row.push_back(i - first);
      }
    const std::vector<ContinuationScore> scores = model_.score(requests);
    std::vector<double> sums(end - first, 0);
    for (size_t r = 0; r < scores.size(); ++r) sums[of_row[r]] += scores[r].logprob;
    const Pattern spaces(R"(\s+)");
    for (size_t i = first; i < end; ++i) {
      const std::string text = task_.target_text(i);
      const double sum = sums[i - first];
      TaskJson metrics = TaskJson::object();
      for (const std::string& name : config_.metrics) {
        const double units = name == "word_perplexity" ? static_cast<double>(spaces.split(text).size())
                                                       : static_cast<double>(text.size());
        metrics[name] = TaskJson::array({sum, static_cast<int64_t>(units)});
        book_.add_weighted(name, sum, units);
      }
      result_.samples.push_back(record_of(task_, i, text, TaskJson::array({TaskJson::array({text})}),
                                          TaskJson::array({TaskJson::array({python_float(sum)})}),
                                          TaskJson::array({python_float(sum)}), "none", metrics));
    }
  }

  ScoreRequest request(const std::string& context, const std::string& continuation, size_t row) {
    bool cut = false;
    ScoreRequest r = score_request(model_, context, continuation, task_.where(row), cut);
    result_.cut_prompts += cut ? 1 : 0;
    return r;
  }

  void generate(size_t first, size_t end) {
    if (config_.chat.thinking == ThinkingMode::switched) {
      for (size_t i = first; i < end; ++i) switched_row(i);
      return;
    }
    std::vector<AnswerRequest> requests;
    std::vector<std::string> prompts;
    for (size_t i = first; i < end; ++i) {
      AnswerRequest r{.prompt = {}, .key = i};
      if (config_.chat.enabled) {
        r.turns = chat_turns(task_, i), r.thinking = config_.chat.thinking;
        ChatPrompt prompt = model_.chat_prompt(r.turns, r.thinking);
        r.prompt = std::move(prompt.ids), r.in_thinking = prompt.in_thinking;
        prompts.push_back(std::move(prompt.text));
      } else {
        prompts.push_back(task_.context(i));
        r.prompt = model_.encode(prompts.back());
        if (model_.begin()) r.prompt.insert(r.prompt.begin(), *model_.begin());
      }
      bool cut = false;
      r.prompt = answer_prompt(model_, std::move(r.prompt), config_.sampling.max_tokens, task_.where(i), cut);
      result_.cut_prompts += cut ? 1 : 0;
      requests.push_back(std::move(r));
    }
    const auto answers = model_.answer(requests, config_.sampling);
    for (size_t i = first; i < end; ++i) {
      std::vector<std::string> texts;
      int64_t formed = 0;
      for (const Answer& a : answers[i - first]) {
        count_length(a);
        texts.push_back(a.text);
        if (!config_.chat.enabled) continue;
        ParsedAnswer parsed = model_.parse_answer(a.text, requests[i - first].in_thinking);
        formed += well_formed(a, parsed) ? 1 : 0;
        texts.back() = std::move(parsed.content);
      }
      generation_row(i, prompts[i - first], texts,
                     static_cast<double>(formed) / static_cast<double>(texts.size()));
    }
  }

  /// `formed`: share of the row's answers that are well_formed().
  void generation_row(size_t row, const std::string& prompt, const std::vector<std::string>& texts,
                      double formed) {
    const std::string target = task_.target_text(row);
    const TaskSampling& s = config_.sampling;
    const TaskJson arguments =
        TaskJson::array({TaskJson::array({prompt, TaskJson{{"until", s.stop},
                                                           {"do_sample", s.temperature > 0},
                                                           {"temperature", s.temperature},
                                                           {"max_gen_toks", s.max_tokens}}})});
    for (const Filter& filter : filters_) {
      std::vector<std::string> answers;
      for (const std::string& text : texts) answers.push_back(filter.apply(text));
      const TaskJson metrics = generation_metrics(row, filter.name(), answers, target, formed);
      count(metrics, filter.name());
      result_.samples.push_back(
          record_of(task_, row, target, arguments, TaskJson::array({texts}),
                    s.samples == 1 ? TaskJson::array({answers[0]}) : TaskJson::array({answers}),
                    filter.name(), metrics));
    }
  }

  TaskJson generation_metrics(size_t row, const std::string& filter, const std::vector<std::string>& answers,
                              const std::string& target, double formed) {
    std::vector<double> right;
    std::vector<std::string> counted = answers;  // equal where they say the same
    for (std::string& a : counted) {
      if (config_.environment.name.empty()) {
        right.push_back(comparison_.equal(a, target) ? 1 : 0);
        continue;
      }
      JudgedAnswer judged = judge_row(task_.rows()[row], a, task_.where(row));
      right.push_back(judged.reward);
      a = std::move(judged.answer);
    }
    if (right.size() > 1) rights_[filter].push_back(right);
    TaskJson metrics = TaskJson::object();
    for (const std::string& name : config_.metrics) {
      const MetricName m = metric_name(name);
      const auto k = static_cast<size_t>(std::max<int64_t>(1, m.k));
      const auto firsts = std::span(right).first(std::min(k, right.size()));
      if (m.base == "exact_match" || m.base == "reward") metrics[name] = right[0];
      if (m.base == "avg") metrics[name] = mean(firsts);
      if (m.base == "best") metrics[name] = *std::max_element(firsts.begin(), firsts.end());
      if (m.base == "pass")
        metrics[name] =
            pass_at_k(static_cast<int64_t>(right.size()), std::count(right.begin(), right.end(), 1.0), m.k);
      if (m.base == "majority") metrics[name] = majority_right(std::span(counted).first(k), right);
      if (m.base == "well_formed") metrics[name] = formed;
      if (m.base == "instructions")
        metrics.update(instruction_metrics(task_.rows()[row], answers[0], task_.where(row)));
    }
    return metrics;
  }

  /// An environment's problem has no answer where none was found: such a reply has no vote.
  double majority_right(std::span<const std::string> answers, std::span<const double> right) const {
    std::vector<std::string> votes;
    std::vector<double> rights;
    for (size_t i = 0; i < answers.size(); ++i)
      if (config_.environment.name.empty() || !answers[i].empty())
        votes.push_back(answers[i]), rights.push_back(right[i]);
    return votes.empty() ? 0 : rights[static_cast<size_t>(&majority(votes) - votes.data())];
  }

  void switched_row(size_t row) {
    const SwitchOutcome outcome = run_think_switch(task_, row, model_);
    for (const Answer& a : outcome.answers) count_length(a);
    TaskJson metrics = TaskJson::object();
    for (const std::string& name : config_.metrics)
      metrics[name] = name == "well_formed" ? outcome.formed_share() : outcome.share();
    count(metrics);
    result_.samples.push_back(record_of(task_, row, task_.target_text(row), outcome.arguments(),
                                        outcome.texts(), outcome.modes(), "none", metrics));
  }

  void count_length(const Answer& a) {
    lengths_.push_back(a.tokens);
    cut_ += a.cut ? 1 : 0;
  }

  void finish_generation() {
    for (const FilterConfig& f : config_.filters)
      if (const auto noise = seed_noise(rights_[f.name]))
        result_.values.push_back({"seed_noise", f.name, *noise, {}});
    std::sort(lengths_.begin(), lengths_.end());
    const size_t n = lengths_.size();
    if (n == 0) return;
    AnswerLengths l{.answers = static_cast<int64_t>(n), .cut = cut_};
    for (const int64_t t : lengths_) l.tokens += t;
    l.median = lengths_[n / 2], l.ninety = lengths_[std::min(n - 1, n * 9 / 10)], l.longest = lengths_.back();
    result_.lengths = l;
  }

  const Task& task_;
  const TaskConfig& config_;
  TaskModel& model_;
  const TaskProgress& progress_;
  AnswerComparison comparison_;
  std::vector<Filter> filters_;
  ScoreBook book_;
  TaskResult result_;
  std::map<std::string, std::vector<std::vector<double>>> rights_;  ///< by filter: [row][sample]
  std::vector<int64_t> lengths_;
  int64_t cut_ = 0;
};

}  // namespace

const MetricValue* TaskResult::find(const std::string& metric) const {
  for (const MetricValue& v : values)
    if (v.metric == metric || v.metric + "," + v.filter == metric) return &v;
  return nullptr;
}

AnswerComparison::AnswerComparison(const TaskConfig& config)
    : lower_(config.ignore_case), punctuation_(config.ignore_punctuation) {
  for (const std::string& p : config.ignore) ignore_.emplace_back(p);
}

std::string AnswerComparison::reduced(std::string text) const {
  for (const Pattern& p : ignore_) text = p.replace_all(text, "");
  for (char& c : text)
    if (lower_ && c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  if (punctuation_) std::erase_if(text, [](unsigned char c) { return c < 128 && std::ispunct(c) != 0; });
  return text;
}

bool AnswerComparison::equal(const std::string& answer, const std::string& target) const {
  return reduced(answer) == reduced(target);
}

TaskResult run_task(const Task& task, TaskModel& model, const TaskProgress& progress) {
  return TaskRun(task, model, progress).run();
}

}  // namespace ingot
