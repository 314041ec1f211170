// A task as data: tasks/NAME.toml says what is asked and how it is scored, and a file of rows (JSON
// objects, one a line) beside it holds the questions. docs/evaluate.md explains every key. A Task never
// changes after it is loaded; const methods are thread-safe.
#pragma once
#include <string>
#include <vector>

#include "base/config.h"
#include "base/file_system.h"
#include "eval/filters.h"
#include "eval/row_template.h"

namespace ingot {

enum class TaskKind : uint8_t { choice, cloze, generation, perplexity };
constexpr auto enum_names(TaskKind) {
  return names_in_order<TaskKind>("choice", "cloze", "generation", "perplexity");
}

enum class ThinkingMode : uint8_t { automatic, on, off, switched };
constexpr auto enum_names(ThinkingMode) {
  return names_in_order<ThinkingMode>("default", "on", "off", "switched");
}

/// [fewshot]
struct FewshotConfig {
  int64_t count = 0;
  std::string data;
  std::string delimiter = "\n\n";
  template <class Visitor>
  void visit(Visitor& v) {
    v("count", count, "solved examples before the question: the first rows of their file", up_to(1000));
    v("data", data, "their file; empty: the task's own, whose row itself is left out");
    v("delimiter", delimiter, "text behind each example");
  }
};

/// [sampling]
struct TaskSampling {
  int64_t max_tokens = 256;
  std::vector<std::string> stop;
  double temperature = 0, top_p = 1, min_p = 0;
  int64_t top_k = 0, seed = 1234, samples = 1, thinking_tokens = 0;
  template <class Visitor>
  void visit(Visitor& v) {
    v("max_tokens", max_tokens, "new tokens at most", between(1, 0x1p24));
    v("stop", stop, "texts that end an answer; they are not part of it");
    v("temperature", temperature, "0: always the most likely token", up_to(1e6));
    v("top_k", top_k, "sample from the k most likely tokens; 0: all", up_to(bounds::kVocabulary));
    v("top_p", top_p, "sample from the smallest set of tokens with this total probability", positive(1));
    v("min_p", min_p, "drop tokens below this fraction of the largest probability", up_to(1));
    v("seed", seed, "of the random numbers; a row's number and the sample's are mixed in", up_to(0x1p63));
    v("samples", samples, "answers to each row", between(1, 10000));
    v("thinking_tokens", thinking_tokens, "budget of the reasoning, which is then closed; 0: none",
      up_to(bounds::kSequence));
  }
};

/// [chat]: the prompt is a user's message in the model's own chat format.
struct TaskChat {
  bool enabled = false;
  std::string system;
  std::string messages;
  ThinkingMode thinking = ThinkingMode::automatic;
  template <class Visitor>
  void visit(Visitor& v) {
    v("enabled", enabled, "ask in the model's chat format; reasoning is taken out of the answer");
    v("system", system, "text of the system's message; empty: none");
    v("messages", messages, "field that holds a list of messages instead of the prompt; empty: none");
    v("thinking", thinking, "of templates that can: default, on, off, or switched (by turn, at random)");
  }
};

/// [environment]: rows are problems that the environment makes, and it judges the answers.
struct EnvironmentTask {
  std::string name;
  int64_t least = -1, most = -1, problems = 200, seed = 0;
  template <class Visitor>
  void visit(Visitor& v) {
    v("name", name, "of the environment, or the path of a file of rows; empty: the task has rows of its own");
    v("least", least, "least difficulty; -1: the environment's", between(-1, 1e6));
    v("most", most, "largest difficulty; -1: the environment's", between(-1, 1e6));
    v("problems", problems, "how many", between(1, 1e6));
    v("seed", seed, "of the held-out problems", between(0, 0x1p32 - 1));
  }
};

struct TaskConfig {
  std::string name, description, data, prompt, target, choices_field, delimiter = " ";
  int64_t version = 1, rows = 0, window = 0;
  TaskKind kind = TaskKind::choice;
  double chance = 0;
  std::vector<std::string> choices, metrics, ignore;
  bool ignore_case = false, ignore_punctuation = false;
  FewshotConfig fewshot;
  TaskSampling sampling;
  TaskChat chat;
  EnvironmentTask environment;
  std::vector<FilterConfig> filters;
  template <class Visitor>
  void visit(Visitor& v) {
    v("name", name, "empty: the file's");
    v("version", version, "counts changes that move scores", up_to(1e9));
    v("kind", kind, "what is asked of the model");
    v("data", data, "file of rows, beside this file");
    v("rows", rows, "how many of them, the first; 0: all", up_to(1e12));
    v("description", description, "text before everything");
    v("prompt", prompt, "text of the question, with {{fields}} of the row");
    v("target", target,
      "what is right: the index or text of a choice; the text to predict; the answer; the text of "
      "perplexity");
    v("choices", choices, "choice: the texts to choose from, the same for every row");
    v("choices_field", choices_field, "choice: field of the row that holds a list of texts instead");
    v("delimiter", delimiter, "text between prompt and choice or target");
    v("metrics", metrics, "what is computed; empty: what is usual for the kind");
    v("chance", chance, "score of a guess, for the quality report; 0 for choices: one by their number",
      up_to(1));
    v("window", window, "perplexity: tokens of a window; 0: as many as the model's context holds",
      up_to(bounds::kSequence));
    v("ignore", ignore, "generation: patterns that are removed from answer and target before comparison");
    v("ignore_case", ignore_case, "generation: compare in lower case");
    v("ignore_punctuation", ignore_punctuation, "generation: compare without punctuation");
    v("fewshot", fewshot, "solved examples");
    v("sampling", sampling, "generation: how answers are drawn");
    v("chat", chat, "generation: ask as in a conversation");
    v("environment", environment, "generation: ask an environment's problems");
    v("filters", filters, "generation: what is made of an answer before it is compared");
  }
  void validate(ConfigErrors& errors) const;
};

/// A metric of generation over several answers: "pass@4" is {"pass", 4}; "exact_match" {"exact_match", 0}.
struct MetricName {
  std::string base;
  int64_t k = 0;
};
MetricName metric_name(const std::string& name);
/// Whether more is better: all but perplexities and bits_per_byte.
bool higher_is_better(const std::string& metric);

class Task {
 public:
  /// `path` is the file of the task. `data_folder`: where its rows are looked for first; "": beside the file.
  /// Errors name file, line (row) and field.
  /// `limit`: at most so many rows; 0: what the file says.
  static Task load(FileSystem& fs, const std::string& path, const std::string& data_folder = {},
                   int64_t limit = 0);
  /// From memory: the texts of the three files and the paths that stand for them in messages. A task of an
  /// environment makes its rows itself.
  static Task parse(const std::string& toml, const std::string& path, const std::string& rows,
                    const std::string& rows_path, const std::string& fewshot_rows = {},
                    const std::string& fewshot_path = {}, int64_t limit = 0);

  const TaskConfig& config() const { return config_; }
  const std::string& name() const { return config_.name; }
  const std::vector<TaskJson>& rows() const { return rows_; }
  int64_t original_rows() const { return original_rows_; }
  const std::string& data_path() const { return data_path_; }
  const std::string& fewshot_path() const { return fewshot_path_; }
  /// "'tasks/x.jsonl' row 3": for messages, and the text in front of them.
  std::string where(size_t row) const;

  /// Description, examples and question.
  std::string context(size_t row) const;
  std::string prompt_text(size_t row) const { return prompt_.render(rows_[row], where(row)); }
  /// The rendered target; of a choice as it is written.
  std::string target_text(size_t row) const { return target_.render(rows_[row], where(row)); }
  std::vector<std::string> choices(size_t row) const { return choices_of(rows_[row], where(row)); }
  /// Index of the right choice; Error where the target is none of them.
  size_t gold(size_t row) const { return gold_of(rows_[row], where(row)); }
  /// The score of a guess.
  double chance() const;

 private:
  std::vector<std::string> choices_of(const TaskJson& row, const std::string& where) const;
  size_t gold_of(const TaskJson& row, const std::string& where) const;
  std::string example(const TaskJson& row, const std::string& where) const;
  void check_rows() const;

  TaskConfig config_;
  std::string data_path_, fewshot_path_;
  std::vector<TaskJson> rows_, examples_;
  int64_t original_rows_ = 0;
  RowTemplate prompt_, target_;
};

/// The file of a task that a person names: a path (it ends in .toml or has a slash), or the name of a file in
/// one of `folders`. Error that lists what there is.
std::string task_path(FileSystem& fs, const std::string& name, const std::vector<std::string>& folders);
/// "tasks" where one works, and what was installed beside the program.
std::vector<std::string> default_task_folders();
/// "a,b" as names; Error for an empty one or one twice.
std::vector<std::string> task_names(const std::string& list);

}  // namespace ingot
