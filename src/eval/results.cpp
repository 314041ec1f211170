// See results.h.
#include "eval/results.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/build_info.h"
#include "base/error.h"
#include "base/utf8.h"
#include "eval/sha256.h"

namespace ingot {
namespace {

/// 2026-11-24T15:41:35.123456 of local time, with ':' as '-' where files are named.
std::string iso_date(double seconds, bool in_file_name) {
  const auto whole = static_cast<std::time_t>(std::floor(seconds));
  std::tm t{};
  localtime_r(&whole, &t);
  const char colon = in_file_name ? '-' : ':';
  return fmt::format("{:04}-{:02}-{:02}T{:02}{}{:02}{}{:02}.{:06}", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday,
                     t.tm_hour, colon, t.tm_min, colon, t.tm_sec,
                     static_cast<int>((seconds - std::floor(seconds)) * 1e6));
}

std::string file_name_of(const std::string& model) {
  std::string out;
  for (const char c : model) {
    const bool bad = std::string_view("\"<>:/|\\?*[]").find(c) != std::string_view::npos;
    if (!bad)
      out += c;
    else if (!out.ends_with("__") || out.empty())
      out += "__";
  }
  return out.empty() ? "model" : out;
}

TaskJson values_json(const TaskEvaluation& e) {
  TaskJson v = {{"name", e.task->name()}, {"alias", e.task->name()}, {"sample_len", e.result.rows}};
  for (const MetricValue& m : e.result.values) {
    v[m.metric + "," + m.filter] = m.value;
    v[m.metric + "_stderr," + m.filter] = m.error ? TaskJson(*m.error) : TaskJson("N/A");
  }
  return v;
}

TaskJson own_json(const std::vector<TaskEvaluation>& evaluations) {
  TaskJson own = TaskJson::object();
  for (const TaskEvaluation& e : evaluations) {
    TaskJson t = {{"chance", e.task->chance()}, {"cut_prompts", e.result.cut_prompts}};
    if (const auto& l = e.result.lengths)
      t["answer_tokens"] = {{"answers", l->answers},     {"tokens", l->tokens},   {"median", l->median},
                            {"quantile_0.9", l->ninety}, {"longest", l->longest}, {"cut", l->cut}};
    own[e.task->name()] = std::move(t);
  }
  return own;
}

std::string hash_of_samples(const TaskEvaluation& e) {
  std::string all;
  for (const TaskJson& s : e.result.samples)
    for (const char* key : {"doc_hash", "prompt_hash", "target_hash"}) all += s.at(key).get<std::string>();
  return sha256_hex(all);
}

TaskJson sorted(const TaskJson& object) {
  std::vector<std::string> keys;
  for (auto it = object.begin(); it != object.end(); ++it) keys.push_back(it.key());
  std::sort(keys.begin(), keys.end());
  TaskJson out = TaskJson::object();
  for (const std::string& k : keys) out[k] = object[k];
  return out;
}

}  // namespace

TaskJson results_json(const EvaluatedModel& model, const std::vector<TaskEvaluation>& evaluations,
                      double started, double seconds) {
  TaskJson results = TaskJson::object(), tasks = TaskJson::object(), configs = TaskJson::object(),
           versions = TaskJson::object(), shots = TaskJson::object(), better = TaskJson::object(),
           counts = TaskJson::object(), hashes = TaskJson::object();
  for (const TaskEvaluation& e : evaluations) {
    const std::string& name = e.task->name();
    results[name] = values_json(e);
    tasks[name] = TaskJson::array();
    configs[name] = harness_config(*e.task, false);
    versions[name] = e.task->config().version;
    shots[name] = e.task->config().fewshot.count;
    for (const MetricValue& v : e.result.values) better[name][v.metric] = higher_is_better(v.metric);
    counts[name] = {{"original", e.task->original_rows()}, {"effective", e.result.rows}};
    hashes[name] = hash_of_samples(e);
  }
  const auto named = [](const std::string& text, std::optional<int32_t> id) {
    return TaskJson::array({text, id ? std::to_string(*id) : "None"});
  };
  const TaskJson chat = model.chat_template.empty() ? TaskJson() : TaskJson(model.chat_template);
  return {{"results", results},
          {"group_subtasks", tasks},
          {"configs", sorted(configs)},
          {"versions", sorted(versions)},
          {"n-shot", sorted(shots)},
          {"higher_is_better", sorted(better)},
          {"n-samples", counts},
          {"config",
           {{"model", "ingot"},
            {"model_args", {{"model", model.path}}},
            {"model_num_parameters", model.parameters},
            {"model_dtype", model.dtype},
            {"batch_size", nullptr},
            {"batch_sizes", TaskJson::array()},
            {"device", "cpu"},
            {"use_cache", nullptr},
            {"limit", nullptr},
            {"bootstrap_iters", 100000},
            {"gen_kwargs", TaskJson::object()},
            {"random_seed", 0},
            {"numpy_seed", 1234},
            {"torch_seed", 1234},
            {"fewshot_seed", 1234}}},
          {"git_hash", build_info().commit},
          {"date", started},
          {"pretty_env_info", fmt::format("ingot {}, {} {}", build_info().version, build_info().compiler,
                                          build_info().build_type)},
          {"transformers_version", nullptr},
          {"lm_eval_version", "0.4.13"},
          {"upper_git_hash", nullptr},
          {"tokenizer_pad_token", named(model.end_text, model.end_id)},
          {"tokenizer_eos_token", named(model.end_text, model.end_id)},
          {"tokenizer_bos_token", named(model.begin_text, model.begin_id)},
          {"eot_token_id", model.end_id ? TaskJson(*model.end_id) : TaskJson()},
          {"max_length", model.context},
          {"task_hashes", hashes},
          {"model_source", "ingot"},
          {"model_name", model.path},
          {"model_name_sanitized", file_name_of(model.path)},
          {"system_instruction", nullptr},
          {"system_instruction_sha", nullptr},
          {"fewshot_as_multiturn", false},
          {"chat_template", chat},
          {"chat_template_sha", chat.is_null() ? TaskJson() : TaskJson(sha256_hex(model.chat_template))},
          {"total_evaluation_time_seconds", python_float(seconds)},
          {"ingot", own_json(evaluations)}};
}

std::string write_results(FileSystem& fs, const std::string& folder, const EvaluatedModel& model,
                          const std::vector<TaskEvaluation>& evaluations, double started, double seconds) {
  const std::string place = folder + "/" + file_name_of(model.path), date = iso_date(started + seconds, true);
  fs.create_folders(place);
  for (const TaskEvaluation& e : evaluations) {
    std::string lines;
    for (const TaskJson& s : e.result.samples) lines += python_json(s) + "\n";
    write_file_atomically(fs, fmt::format("{}/samples_{}_{}.jsonl", place, e.task->name(), date), lines);
  }
  const std::string path = fmt::format("{}/results_{}.json", place, date);
  write_file_atomically(fs, path, python_json(results_json(model, evaluations, started, seconds), 2));
  return path;
}

std::string results_notes(const std::vector<TaskEvaluation>& evaluations) {
  std::string out;
  for (const TaskEvaluation& e : evaluations) {
    if (const auto& l = e.result.lengths)
      out += fmt::format(
          "{}: {} answers, median {} tokens, 90 % at most {}, longest {}; {} reached the budget\n",
          e.task->name(), l->answers, l->median, l->ninety, l->longest, l->cut);
    if (e.result.cut_prompts > 0)
      out += fmt::format("{}: {} prompts were longer than the model's context and were cut on the left\n",
                         e.task->name(), e.result.cut_prompts);
  }
  return out;
}

}  // namespace ingot
