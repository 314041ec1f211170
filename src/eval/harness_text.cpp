// The table of results and the configuration of a task, as lm-evaluation-harness has them. See results.h.
#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "eval/results.h"

namespace ingot {
namespace {

std::string absolute(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

const char* output_type(TaskKind kind) {
  switch (kind) {
    case TaskKind::choice:
      return "multiple_choice";
    case TaskKind::cloze:
      return "loglikelihood";
    case TaskKind::generation:
      return "generate_until";
    case TaskKind::perplexity:
      return "loglikelihood_rolling";
  }
  return "";
}

/// The harness's function for a step; nothing where it has none.
std::optional<TaskJson> harness_step(const FilterStep& step) {
  switch (step.function) {
    case FilterFunction::strip:
      return TaskJson{{"function", "remove_whitespace"}};
    case FilterFunction::lower:
      return TaskJson{{"function", "lowercase"}};
    case FilterFunction::regex:
      return TaskJson{{"function", "regex"},
                      {"regex_pattern", step.pattern},
                      {"group_select", step.select},
                      {"fallback", step.fallback}};
    default:
      return {};
  }
}

class HarnessTask {
 public:
  HarnessTask(const Task& task, bool require_equal)
      : task_(task), c_(task.config()), require_(require_equal) {}

  TaskJson json() {
    data();
    texts();
    if (c_.kind == TaskKind::generation) generation();
    metrics();
    out_["should_decontaminate"] = false;
    out_["unsafe_code"] = false;
    out_["metadata"] = {{"version", c_.version}};
    return std::move(out_);
  }

 private:
  void lacks(const std::string& what) const {
    if (require_)
      throw Error(
          fmt::format("the task '{}' has {}, which lm-evaluation-harness does not have", task_.name(), what),
          "leave it out of the tasks that are exported");
  }

  void data() {
    TaskJson files = {{"test", absolute(task_.data_path())}};
    if (!task_.fewshot_path().empty()) files["train"] = absolute(task_.fewshot_path());
    out_ = {{"task", task_.name()},
            {"dataset_path", "json"},
            {"dataset_kwargs", {{"data_files", files}}},
            {"test_split", "test"}};
    if (c_.fewshot.count > 0) {
      const char* split = task_.fewshot_path().empty() ? "test" : "train";
      out_["fewshot_split"] = split;
      out_["fewshot_config"] = {{"sampler", "first_n"}, {"split", split}};
    }
    if (c_.rows > 0) lacks("a limit of rows");
  }

  void texts() {
    const bool follows = c_.kind == TaskKind::cloze;  // there the target has the delimiter itself
    out_["doc_to_text"] = c_.kind == TaskKind::perplexity ? "" : c_.prompt;
    out_["doc_to_target"] = follows ? c_.delimiter + c_.target : c_.target;
    if (c_.kind == TaskKind::choice) {
      if (c_.choices_field.empty())
        out_["doc_to_choice"] = c_.choices;
      else
        out_["doc_to_choice"] = c_.choices_field;
    }
    if (!c_.description.empty()) out_["description"] = c_.description;
    out_["target_delimiter"] = follows ? "" : c_.delimiter;
    out_["fewshot_delimiter"] = c_.fewshot.delimiter;
    out_["num_fewshot"] = c_.fewshot.count;
    out_["output_type"] = output_type(c_.kind);
    if (c_.window > 0) lacks("a window of its own (give max_length, two more, to its model)");
  }

  void generation() {
    const TaskSampling& s = c_.sampling;
    TaskJson kwargs = {{"until", s.stop},
                       {"do_sample", s.temperature > 0},
                       {"temperature", s.temperature},
                       {"max_gen_toks", s.max_tokens}};
    if (s.top_p < 1) kwargs["top_p"] = s.top_p;
    if (s.top_k > 0) kwargs["top_k"] = s.top_k;
    if (s.min_p > 0) kwargs["min_p"] = s.min_p;
    out_["generation_kwargs"] = std::move(kwargs);
    out_["repeats"] = s.samples;
    if (s.temperature > 0) lacks("answers drawn at random (its seeds mean other numbers)");
    if (s.thinking_tokens > 0) lacks("a budget of the reasoning");
    if (c_.chat.enabled && (c_.chat.thinking != ThinkingMode::automatic || !c_.chat.messages.empty()))
      lacks("thinking that is switched, or messages of a row");
    TaskJson list = TaskJson::array();
    for (const FilterConfig& f : c_.filters) {
      TaskJson steps = TaskJson::array();
      for (const FilterStep& step : f.steps) {
        if (const auto one = harness_step(step))
          steps.push_back(*one);
        else
          lacks(fmt::format("the filter '{}'", name_of(step.function)));
      }
      steps.push_back({{"function", "take_first"}});
      list.push_back({{"name", f.name}, {"filter", steps}});
    }
    out_["filter_list"] = std::move(list);
  }

  void metrics() {
    TaskJson list = TaskJson::array();
    for (const std::string& name : c_.metrics) {
      const std::string base = metric_name(name).base;
      const char* aggregation = base == "perplexity" && c_.kind == TaskKind::cloze ? "perplexity"
                                : base == "bits_per_byte"                          ? "bits_per_byte"
                                : c_.kind == TaskKind::perplexity                  ? "weighted_perplexity"
                                                                                   : "mean";
      TaskJson m = {
          {"metric", name}, {"aggregation", aggregation}, {"higher_is_better", higher_is_better(name)}};
      if (base == "exact_match") {
        m["ignore_case"] = c_.ignore_case;
        m["ignore_punctuation"] = c_.ignore_punctuation;
        if (!c_.ignore.empty()) m["regexes_to_ignore"] = c_.ignore;
      } else if (c_.kind == TaskKind::generation) {
        lacks(fmt::format("the metric '{}'", name));
      }
      list.push_back(std::move(m));
    }
    out_["metric_list"] = std::move(list);
  }

  const Task& task_;
  const TaskConfig& c_;
  bool require_;
  TaskJson out_;
};

std::string padded(const std::string& text, size_t width, int align) {  // -1 left, 0 centre, 1 right
  const auto have = static_cast<size_t>(characters(text));
  const size_t gap = width > have ? width - have : 0, left = align < 0 ? 0 : align > 0 ? gap : gap / 2;
  return std::string(left, ' ') + text + std::string(gap - left, ' ');
}

}  // namespace

TaskJson harness_config(const Task& task, bool require_equal) {
  return HarnessTask(task, require_equal).json();
}

std::string results_table(const std::vector<TaskEvaluation>& evaluations) {
  using Row = std::array<std::string, 9>;
  const Row heads = {"Tasks", "Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr"};
  const std::array<int, 9> aligns = {-1, 1, -1, 1, -1, -1, 1, -1, 1};
  std::vector<const TaskEvaluation*> tasks;
  for (const TaskEvaluation& e : evaluations) tasks.push_back(&e);
  std::sort(tasks.begin(), tasks.end(), [](auto* a, auto* b) { return a->task->name() < b->task->name(); });
  std::vector<Row> rows;
  for (const TaskEvaluation* e : tasks) {
    std::vector<MetricValue> values = e->result.values;
    std::sort(values.begin(), values.end(), [](const auto& a, const auto& b) {
      return a.metric + "," + a.filter < b.metric + "," + b.filter;
    });
    bool first = true;
    for (const MetricValue& v : values) {
      const TaskConfig& c = e->task->config();
      rows.push_back({first ? c.name : "", first ? std::to_string(c.version) : "", v.filter,
                      std::to_string(c.fewshot.count), v.metric, higher_is_better(v.metric) ? "↑" : "↓",
                      fmt::format("{:.4f}", v.value), "±",
                      v.error ? fmt::format("{:.4f}", *v.error) : "N/A"});
      first = false;
    }
  }
  std::array<size_t, 9> widths{};
  for (size_t c = 0; c < 9; ++c) {
    widths[c] = std::max<size_t>(3, heads[c].size());
    for (const Row& row : rows) widths[c] = std::max(widths[c], static_cast<size_t>(characters(row[c])));
  }
  std::string out, rule;
  for (size_t c = 0; c < 9; ++c) {
    out += "|" + padded(heads[c], widths[c], 0);
    rule += "|" + std::string(widths[c] - (aligns[c] > 0 ? 1 : 0), '-') + (aligns[c] > 0 ? ":" : "");
  }
  out += "|\n" + rule + "|\n";
  for (const Row& row : rows) {
    for (size_t c = 0; c < 9; ++c) out += "|" + padded(row[c], widths[c], aligns[c]);
    out += "|\n";
  }
  return out;
}

}  // namespace ingot
