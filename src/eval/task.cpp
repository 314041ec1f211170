// See task.h.
#include "eval/task.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/json_depth.h"
#include "base/utf8.h"
#include "eval/environment_task.h"

namespace ingot {
namespace {

constexpr size_t kMostRows = 1'000'000, kLongestRow = size_t{4} << 20;

std::vector<std::string> metrics_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::choice:
      return {"acc", "acc_norm", "acc_bytes", "acc_mutual_info"};
    case TaskKind::cloze:
      return {"acc", "perplexity"};
    case TaskKind::perplexity:
      return {"word_perplexity", "byte_perplexity", "bits_per_byte"};
    case TaskKind::generation:
      return {"exact_match", "reward",       "avg",          "pass",       "best",
              "majority",    "instructions", "think_follow", "well_formed"};
  }
  return {};
}

std::vector<std::string> usual_metrics(TaskKind kind) {
  if (kind == TaskKind::choice) return {"acc", "acc_norm"};
  if (kind == TaskKind::generation) return {"exact_match"};
  return metrics_of(kind);
}

std::vector<TaskJson> read_rows(const std::string& text, const std::string& path) {
  std::vector<TaskJson> rows;
  size_t line = 0;
  for (size_t at = 0; at < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view row = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (row.find_first_not_of(" \t\r") == row.npos) continue;
    const std::string where = fmt::format("'{}' line {}", path, line + 1);
    if (row.size() > kLongestRow)
      fail("{} has {} bytes, expected at most {}", where, row.size(), kLongestRow);
    require_shallow_json(row, where);
    try {
      rows.push_back(TaskJson::parse(row));
    } catch (const nlohmann::json::exception& e) {
      throw Error(fmt::format("{} is not valid JSON: {}", where, e.what()),
                  "write one JSON object a line, as {\"question\": \"...\", \"answer\": \"...\"}");
    }
    if (!rows.back().is_object())
      fail("{}: expected an object of fields, found {}", where, rows.back().type_name());
    if (rows.size() > kMostRows) fail("'{}' has more than {} rows", path, kMostRows);
  }
  if (rows.empty()) fail("'{}' has no rows", path);
  return rows;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? "" : path.substr(0, slash + 1);
}

bool all_digits(std::string_view text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == text.npos;
}

}  // namespace

MetricName metric_name(const std::string& name) {
  const size_t at = name.find('@');
  if (at == name.npos) return {name, 0};
  const std::string k = name.substr(at + 1);
  return {name.substr(0, at), all_digits(k) ? std::stoll(k) : -1};
}

bool higher_is_better(const std::string& metric) {
  return metric.find("perplexity") == metric.npos && metric != "bits_per_byte" && metric != "seed_noise" &&
         metric != "answer_tokens";
}

void TaskConfig::validate(ConfigErrors& errors) const {
  const bool generates = kind == TaskKind::generation;
  const bool asks_environment = !environment.name.empty();
  if (data.empty() && !asks_environment) errors.add("data", "must name a file of rows");
  if (asks_environment && (!generates || !data.empty() || !target.empty()))
    errors.add_text("environment", "is for kind = \"generation\" without data and target");
  if (environment.least > environment.most && environment.most >= 0)
    errors.add("environment.least", "must be at most environment.most, found {}", environment.least);
  if (target.empty() && !asks_environment &&
      !(generates && std::find(metrics.begin(), metrics.end(), "exact_match") == metrics.end()))
    errors.add("target", "must say what is right");
  if (kind == TaskKind::choice ? choices.empty() == choices_field.empty()
                               : !(choices.empty() && choices_field.empty()))
    errors.add_text("choices", kind == TaskKind::choice
                                   ? "a task of choices has choices or choices_field, one of them"
                                   : "is for kind = \"choice\" only");
  if (kind == TaskKind::choice && choices_field.empty() && choices.size() < 2)
    errors.add("choices", "must have at least two texts, found {}", choices.size());
  if (kind == TaskKind::perplexity && (!prompt.empty() || fewshot.count > 0))
    errors.add("prompt", "perplexity takes the text of `target` alone");
  if (window != 0 && (kind != TaskKind::perplexity || window < 2))
    errors.add("window", "must be at least 2, for kind = \"perplexity\" only, found {}", window);
  if (!generates &&
      (!filters.empty() || !ignore.empty() || ignore_case || ignore_punctuation || chat.enabled))
    errors.add("filters", "filters, ignore and chat are for kind = \"generation\" only");
  if (std::find(sampling.stop.begin(), sampling.stop.end(), "") != sampling.stop.end())
    errors.add("sampling.stop", "must not hold an empty text");
  if (!chat.enabled &&
      (!chat.system.empty() || !chat.messages.empty() || chat.thinking != ThinkingMode::automatic))
    errors.add("chat", "system, messages and thinking need chat.enabled = true");
  const std::vector<std::string> known = metrics_of(kind);
  for (size_t i = 0; i < metrics.size(); ++i) {
    const MetricName m = metric_name(metrics[i]);
    const bool of_k = m.base == "avg" || m.base == "pass" || m.base == "best" || m.base == "majority";
    if (std::find(known.begin(), known.end(), m.base) == known.end() || of_k != (m.k != 0)) {
      std::string names;
      for (const std::string& n : known)
        names += (names.empty() ? "" : ", ") + n +
                 (n == "avg" || n == "pass" || n == "best" || n == "majority" ? "@k" : "");
      errors.add(fmt::format("metrics.{}", i), "'{}' is none of: {}", metrics[i], names);
    } else if (of_k && (m.k < 1 || m.k > sampling.samples)) {
      errors.add(fmt::format("metrics.{}", i), "'{}' needs 1 to {} samples (sampling.samples)", metrics[i],
                 sampling.samples);
    }
    if (m.base == (asks_environment ? "exact_match" : "reward"))
      errors.add(fmt::format("metrics.{}", i),
                 "'{}': answers to an environment have a reward, others an exact_match", metrics[i]);
    if (m.base == "think_follow" && chat.thinking != ThinkingMode::switched)
      errors.add(fmt::format("metrics.{}", i), "think_follow needs chat.thinking = \"switched\"");
    if (chat.thinking == ThinkingMode::switched && m.base != "think_follow" && m.base != "well_formed")
      errors.add(fmt::format("metrics.{}", i),
                 "'{}': with chat.thinking = \"switched\" there are think_follow and well_formed",
                 metrics[i]);
    if (m.base == "well_formed" && !chat.enabled)
      errors.add(fmt::format("metrics.{}", i), "well_formed needs chat.enabled = true");
  }
  for (size_t i = 0; i < ignore.size(); ++i) {
    try {
      const Pattern tried(ignore[i]);
    } catch (const Error& e) {
      errors.add_text(fmt::format("ignore.{}", i), e.what());
    }
  }
}

Task Task::load(FileSystem& fs, const std::string& path, const std::string& data_folder, int64_t limit) {
  const TaskConfig config = read_config<TaskConfig>(load_toml(path));
  if (!config.environment.name.empty()) return parse(fs.read(path), path, "", path, {}, {}, limit);
  const auto find = [&](const std::string& file) {
    const std::string beside = file.starts_with("/") ? file : folder_of(path) + file;
    const std::string given = data_folder + "/" + file;
    const std::string& found = !data_folder.empty() && fs.exists(given) ? given : beside;
    if (!fs.exists(found))
      throw Error(
          fmt::format("the task '{}' has no data: '{}' does not exist", path, found),
          fmt::format("put the file there, or name the folder that holds '{}' with --task-data", file));
    return found;
  };
  const std::string data = find(config.data);
  const std::string examples =
      config.fewshot.count > 0 && !config.fewshot.data.empty() ? find(config.fewshot.data) : "";
  const std::string fewshot_rows = examples.empty() ? "" : fs.read(examples);
  return parse(fs.read(path), path, fs.read(data), data, fewshot_rows, examples, limit);
}

Task Task::parse(const std::string& toml, const std::string& path, const std::string& rows,
                 const std::string& rows_path, const std::string& fewshot_rows,
                 const std::string& fewshot_path, int64_t limit) {
  Task task;
  task.config_ = read_config<TaskConfig>(parse_toml(toml, path));
  TaskConfig& c = task.config_;
  if (c.name.empty()) {
    c.name = path.substr(folder_of(path).size());
    if (c.name.ends_with(".toml")) c.name.resize(c.name.size() - 5);
  }
  for (const char ch : c.name)
    if (!(std::isalnum(static_cast<unsigned char>(ch)) || ch == '_' || ch == '-' || ch == '.'))
      throw Error(fmt::format("'{}': a task's name is '{}'", path, c.name),
                  "give it letters, digits, '_', '-' and '.' alone: it names files");
  const bool asks_environment = !c.environment.name.empty();
  if (c.metrics.empty())
    c.metrics = c.chat.thinking == ThinkingMode::switched ? std::vector<std::string>{"think_follow"}
                : asks_environment                        ? std::vector<std::string>{"reward"}
                                                          : usual_metrics(c.kind);
  if (asks_environment && c.prompt.empty()) c.prompt = "{{prompt}}";
  if (asks_environment && c.chat.enabled && c.chat.messages.empty()) c.chat.messages = "messages";
  if (c.kind == TaskKind::generation && c.filters.empty()) c.filters.emplace_back();
  try {
    task.prompt_ = RowTemplate(c.prompt);
    task.target_ = RowTemplate(c.target);
  } catch (const Error& e) {
    throw Error(fmt::format("'{}': {}", path, e.what()), e.hint());
  }
  task.data_path_ = rows_path;
  task.rows_ = read_rows(asks_environment ? environment_rows(c.environment) : rows, task.data_path_);
  task.original_rows_ = static_cast<int64_t>(task.rows_.size());
  if (c.fewshot.count > 0) {
    task.fewshot_path_ = fewshot_path;
    task.examples_ = c.fewshot.data.empty() ? task.rows_ : read_rows(fewshot_rows, task.fewshot_path_);
    const size_t needed = static_cast<size_t>(c.fewshot.count) + (c.fewshot.data.empty() ? 1 : 0);
    if (task.examples_.size() < needed)
      fail("'{}': fewshot.count = {} needs {} rows, found {}", path, c.fewshot.count, needed,
           task.examples_.size());
    task.examples_.resize(needed);
  }
  for (const int64_t most : {c.rows, limit})
    if (most > 0 && static_cast<size_t>(most) < task.rows_.size())
      task.rows_.resize(static_cast<size_t>(most));
  task.check_rows();
  return task;
}

/// What can be missing in a row is found before the model is asked anything.
void Task::check_rows() const {
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (config_.chat.messages.empty())
      prompt_text(i);
    else
      row_field(rows_[i], {config_.chat.messages}, where(i));
    const std::string target = target_text(i);
    if (config_.kind == TaskKind::choice) gold(i);
    if ((config_.kind == TaskKind::cloze || config_.kind == TaskKind::perplexity) && target.empty())
      fail("{}: the target is empty, so there is nothing to predict", where(i));
  }
  for (const TaskJson& row : examples_)
    example(row, "'" + (fewshot_path_.empty() ? data_path_ : fewshot_path_) + "', an example");
}

std::string Task::where(size_t row) const {
  return fmt::format("'{}' row {}", data_path_, row + 1);
}

std::vector<std::string> Task::choices_of(const TaskJson& row, const std::string& where) const {
  if (config_.choices_field.empty()) return config_.choices;
  const TaskJson& list = row_field(row, {config_.choices_field}, where);
  if (!list.is_array() || list.size() < 2)
    fail("{}: '{}' is {}, expected a list of at least two texts", where, config_.choices_field,
         list.is_array() ? fmt::format("a list of {}", list.size()) : std::string(list.type_name()));
  std::vector<std::string> texts;
  for (const TaskJson& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty())
      fail("{}: '{}' holds {}, expected texts that are not empty", where, config_.choices_field,
           text.is_string() ? "an empty text" : text.type_name());
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

size_t Task::gold_of(const TaskJson& row, const std::string& where) const {
  const std::vector<std::string> texts = choices_of(row, where);
  const std::string target = target_.render(row, where);
  if (all_digits(target)) {
    if (std::stoul(target) >= texts.size())
      throw Error(fmt::format("{}: the target is choice {} of {}", where, target, texts.size()),
                  "choices count from 0");
    return std::stoul(target);
  }
  const auto found = std::find(texts.begin(), texts.end(), target);
  if (found == texts.end())
    throw Error(fmt::format("{}: the target '{}' is none of the choices", where, target),
                "write the index of a choice, from 0, or its text");
  return static_cast<size_t>(found - texts.begin());
}

std::string Task::example(const TaskJson& row, const std::string& where) const {
  const std::string answer = config_.kind == TaskKind::choice ? choices_of(row, where)[gold_of(row, where)]
                                                              : target_.render(row, where);
  return prompt_.render(row, where) + config_.delimiter + answer + config_.fewshot.delimiter;
}

std::string Task::context(size_t row) const {
  std::string text = config_.description;
  int64_t left = config_.fewshot.count;
  const std::string& path = fewshot_path_.empty() ? data_path_ : fewshot_path_;
  for (size_t i = 0; i < examples_.size() && left > 0; ++i) {
    if (fewshot_path_.empty() && config_.fewshot.data.empty() && examples_[i] == rows_[row]) continue;
    text += example(examples_[i], fmt::format("'{}' row {}", path, i + 1));
    --left;
  }
  return text + prompt_text(row);
}

double Task::chance() const {
  if (config_.chance > 0 || config_.kind != TaskKind::choice) return config_.chance;
  double sum = 0;
  for (size_t i = 0; i < rows_.size(); ++i) sum += 1.0 / static_cast<double>(choices(i).size());
  return sum / static_cast<double>(rows_.size());
}

std::string task_path(FileSystem& fs, const std::string& name, const std::vector<std::string>& folders) {
  if (name.ends_with(".toml") || name.find('/') != name.npos) {
    if (!fs.exists(name)) fail("there is no task file '{}'", name);
    return name;
  }
  std::vector<std::string> known;
  for (const std::string& folder : folders) {
    if (!fs.exists(folder)) continue;
    for (const std::string& file : fs.list(folder))
      if (file.ends_with(".toml")) {
        if (file == name + ".toml") return folder + "/" + file;
        known.push_back(file.substr(0, file.size() - 5));
      }
  }
  std::string list;
  for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
  std::string searched;
  for (const std::string& folder : folders) searched += (searched.empty() ? "'" : ", '") + folder + "'";
  const std::string near = nearest_name(name, known);
  throw Error(fmt::format("there is no task '{}' in {}", name, searched),
              (near.empty() ? "" : fmt::format("did you mean '{}'? ", near)) +
                  (list.empty() ? "give the path of a task file" : "the tasks there: " + list));
}

std::vector<std::string> default_task_folders() {
  std::vector<std::string> folders = {"tasks"};
  std::error_code failed;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return folders;
  const auto prefix = program.parent_path().parent_path();  // PREFIX/bin/ingot, or CLONE/build/release/ingot
  for (const auto& place : {prefix / "share/ingot/tasks", prefix.parent_path() / "tasks"})
    if (std::filesystem::is_directory(place, failed)) folders.push_back(place.string());
  return folders;
}

std::vector<std::string> task_names(const std::string& list) {
  std::vector<std::string> names;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string name(python_strip(std::string_view(list).substr(at, end - at)));
    if (name.empty())
      throw Error(fmt::format("the list of tasks '{}' has an empty name", list), "write a,b,c");
    if (std::find(names.begin(), names.end(), name) != names.end())
      fail("the task '{}' is named twice", name);
    names.push_back(name);
    at = end + 1;
  }
  return names;
}

}  // namespace ingot
