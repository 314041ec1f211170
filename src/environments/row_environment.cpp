// See row_environment.h.
#include "environments/row_environment.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "base/json_depth.h"
#include "environments/answer.h"

namespace ingot::environments {
namespace {

using RowObject = nlohmann::ordered_json;

struct QuestionRow {
  chat::Conversation prompt;
  std::string reasoning, answer;
  std::string id;  ///< of the problem that judges; "": `answer` is right
};

const RowObject* text_field(const RowObject& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && (found->is_string() || found->is_number()) ? &*found : nullptr;
}

std::string as_text(const RowObject& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// "48/2 = <<48/2=24>>24" without what stands between << and >>, which a calculator was to fill in.
std::string without_calculations(std::string text) {
  for (size_t at = text.find("<<"); at != text.npos; at = text.find("<<", at)) {
    const size_t end = text.find(">>", at);
    if (end == text.npos) break;
    text.erase(at, end + 2 - at);
  }
  return text;
}

std::string answer_field(const RowObject& row, const std::string& where) {
  if (const auto model = row.find("reward_model"); model != row.end() && model->is_object())
    if (const RowObject* truth = text_field(*model, "ground_truth")) return as_text(*truth);
  for (const char* key : {"answer", "solution", "ground_truth"})
    if (const RowObject* found = text_field(row, key)) return as_text(*found);
  throw Error(
      fmt::format("{} has no right answer", where),
      "rows have a text 'answer', 'solution' or 'ground_truth', or 'reward_model' with 'ground_truth'");
}

QuestionRow read_row(const std::string& line, const std::string& where) {
  require_shallow_json(line, where);
  RowObject row;
  try {
    row = RowObject::parse(line);
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("{} is not valid JSON: {}", where, error.what()),
                "rows are JSON objects, one a line");
  }
  if (!row.is_object()) fail("{}: expected an object of fields, found {}", where, row.type_name());
  QuestionRow read;
  const auto prompt = row.find("prompt");
  if (prompt != row.end() && prompt->is_array())
    read.prompt.messages = chat::read_messages(prompt->dump(), where);
  else if (const RowObject* text = text_field(row, prompt != row.end() ? "prompt" : "question"))
    read.prompt.messages = {chat::text_message("user", as_text(*text))};
  else
    throw Error(fmt::format("{} has no question", where),
                "rows have a text 'question', or 'prompt': a text or messages");
  if (read.prompt.messages.empty()) fail("{}: the prompt has no message", where);
  if (const auto id = row.find("id");
      id != row.end() && id->is_string() && id->get<std::string>().find('@') != std::string::npos) {
    read.id = id->get<std::string>();
    try {
      find_environment(read.id.substr(0, read.id.find('/')));
    } catch (const Error& error) {
      throw Error(fmt::format("{}: {}", where, error.what()), error.hint());
    }
    return read;
  }
  read.answer = answer_field(row, where);
  if (const size_t mark = read.answer.rfind("####"); mark != read.answer.npos) {
    read.reasoning = without_calculations(read.answer.substr(0, mark));
    while (!read.reasoning.empty() && read.reasoning.back() == '\n') read.reasoning.pop_back();
  }
  const FinalAnswer found = final_answer(read.answer);
  if (found.text.empty()) fail("{}: its answer cannot be read: {}", where, found.note);
  read.answer = found.text;
  return read;
}

class RowEnvironment : public Environment {
 public:
  RowEnvironment(std::string path, std::vector<QuestionRow> rows)
      : path_(std::move(path)),
        about_(fmt::format("{} rows of '{}'", rows.size(), path_)),
        rows_(std::move(rows)) {}
  const std::string& name() const override { return path_; }
  const std::string& about() const override { return about_; }
  DifficultyRange difficulty() const override { return {0, 0}; }

  Problem make(uint64_t seed, uint64_t number, int64_t difficulty) const override {
    if (difficulty != 0)
      throw Error(fmt::format("difficulty {} of '{}'", difficulty, path_),
                  "a file of rows has difficulty 0 alone");
    const uint64_t row = row_of(seed, number);
    return {path_, seed, number, difficulty, rows_[row].prompt, std::to_string(row)};
  }

  std::optional<chat::Message> solve(const Problem& problem, const Random& random,
                                     TraceStyle style) const override {
    const QuestionRow& row = rows_.at(std::stoull(problem.data));
    if (!row.id.empty()) {
      const Problem asked = problem_of(row.id);
      return find_environment(asked.environment)->solve(asked, random, style);
    }
    chat::Message reply = chat::text_message("assistant", row.answer);
    if (style != TraceStyle::answer && !row.reasoning.empty()) reply.reasoning_content = row.reasoning;
    return reply;
  }

 protected:
  Verdict verify(const Problem& problem, const std::string& answer) const override {
    const QuestionRow& row = rows_.at(std::stoull(problem.data));
    if (!row.id.empty()) {
      const Problem asked = problem_of(row.id);
      return find_environment(asked.environment)->judge(asked, answer);
    }
    const std::string& right = row.answer;
    const auto number = number_of(right), given = number_of(answer);
    Verdict verdict;
    verdict.answer = given ? *given : folded(answer);
    verdict.reward = (number ? given == number : folded(answer) == folded(right)) ? 1 : 0;
    if (verdict.reward == 0) verdict.note = "the answer is wrong";
    return verdict;
  }

 private:
  /// Steps of a width without a common factor visit every row once; width and start change with the epoch.
  uint64_t row_of(uint64_t seed, uint64_t number) const {
    const uint64_t count = rows_.size();
    if (seed >= kHeldOutSeeds || count == 1) return number % count;
    const Random random(seed, RandomPurpose::environment, hash64(fmt::format("epoch {}", number / count)));
    uint64_t width = 1 + random.below(0, count - 1);
    while (std::gcd(width, count) != 1) ++width;
    return (random.below(1, count) + number % count * width) % count;
  }
  static std::string folded(const std::string& text) {
    std::string all;
    for (std::string word : words_of(text)) {
      for (char& c : word)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
      all += (all.empty() ? "" : " ") + word;
    }
    return all;
  }

  std::string path_, about_;
  std::vector<QuestionRow> rows_;
};

}  // namespace

EnvironmentPointer row_environment(FileSystem& fs, const std::string& path) {
  const std::string text = fs.read(path);
  std::vector<QuestionRow> rows;
  size_t line = 0;
  for (size_t at = 0; at < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string row = text.substr(at, end - at);
    at = end + 1;
    if (row.find_first_not_of(" \t\r") == row.npos) continue;
    rows.push_back(read_row(row, fmt::format("'{}' line {}", path, line + 1)));
  }
  if (rows.empty()) throw Error(fmt::format("'{}' has no rows", path), "rows are JSON objects, one a line");
  return std::make_shared<RowEnvironment>(path, std::move(rows));
}

}  // namespace ingot::environments
