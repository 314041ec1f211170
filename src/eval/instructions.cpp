// See instructions.h.
#include "eval/instructions.h"

#include <algorithm>
#include <functional>
#include <map>

#include "base/error.h"
#include "eval/pattern.h"

namespace ingot {
namespace {

using Texts = std::vector<std::string>;

const TaskJson& row_list(const TaskJson& row, const char* key, const std::string& where) {
  if (row.contains(key) && row[key].is_array()) return row[key];
  throw Error(fmt::format("{}: '{}' is {}, expected a list", where, key,
                          row.contains(key) ? row[key].type_name() : "missing"),
              "a row of the metric 'instructions' has instruction_id_list and kwargs, as IFEval's rows do");
}

std::string lowered(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return text;
}

std::string stripped(std::string_view text) {
  return std::string(python_strip(text));
}

Texts split_by(const std::string& text, const std::string& mark) {
  Texts parts;
  size_t at = 0;
  for (size_t end; (end = text.find(mark, at)) != text.npos; at = end + mark.size())
    parts.push_back(text.substr(at, end - at));
  parts.push_back(text.substr(at));
  return parts;
}

/// The answer to check and the arguments of the instruction, each read by its name and type.
struct Instruction {
  const std::string& name;
  const TaskJson& arguments;
  const std::string& answer;
  const std::string& where;

  const TaskJson& argument(const char* key) const {
    if (arguments.is_object() && arguments.contains(key) && !arguments[key].is_null()) return arguments[key];
    fail("{}: the instruction '{}' lacks '{}' in its kwargs", where, name, key);
  }
  int64_t number(const char* key) const {
    const TaskJson& v = argument(key);
    if (v.is_number_float() && v.get<double>() == static_cast<double>(static_cast<int64_t>(v.get<double>())))
      return static_cast<int64_t>(v.get<double>());  // tables of numbers with gaps hold floats
    if (!v.is_number_integer())
      fail("{}: '{}' of '{}' is {}, expected an integer", where, key, name, v.type_name());
    return v.get<int64_t>();
  }
  std::string text(const char* key) const {
    const TaskJson& v = argument(key);
    if (!v.is_string()) fail("{}: '{}' of '{}' is {}, expected a text", where, key, name, v.type_name());
    return v.get<std::string>();
  }
  Texts texts(const char* key) const {
    const TaskJson& v = argument(key);
    Texts out;
    if (v.is_array())
      for (const TaskJson& t : v)
        if (t.is_string()) out.push_back(t.get<std::string>());
    if (!v.is_array() || out.size() != v.size())
      fail("{}: '{}' of '{}' must be a list of texts", where, key, name);
    return out;
  }
  /// count < n or count >= n, as the argument `relation` says.
  bool compare(int64_t count, const char* relation, const char* threshold) const {
    const std::string r = text(relation);
    if (r != "less than" && r != "at least")
      fail("{}: '{}' of '{}' is '{}', expected 'less than' or 'at least'", where, relation, name, r);
    return r == "less than" ? count < number(threshold) : count >= number(threshold);
  }
  int64_t matches(const std::string& pattern, bool any_case = false, bool lines = false) const {
    return static_cast<int64_t>(Pattern(pattern, any_case, lines).find_all(answer).size());
  }
};

bool all_case(const std::string& text, bool upper) {
  bool any = false;
  for (const char c : text) {
    const bool up = c >= 'A' && c <= 'Z', low = c >= 'a' && c <= 'z';
    if (upper ? low : up) return false;
    any = any || up || low;
  }
  return any;
}

/// A sentence ends at . ! or ? (with quotes or brackets that close) before white space or the end.
int64_t sentences(const std::string& text) {
  int64_t n = 0;
  for (const std::string& part : Pattern(R"((?<=[.!?])["')\]]*(?:\s+|$))").split(text))
    n += stripped(part).empty() ? 0 : 1;
  return n;
}

int64_t capital_words(const std::string& text) {
  int64_t n = 0;
  for (const std::string& word : Pattern(R"([\w'-]+)").find_all(text)) n += all_case(word, true) ? 1 : 0;
  return n;
}

bool paragraphs(const Instruction& i) {
  const Texts parts = Pattern(R"(\s?\*\*\*\s?)").split(i.answer);
  auto n = static_cast<int64_t>(parts.size());
  for (size_t p = 0; p < parts.size(); ++p) {
    if (!stripped(parts[p]).empty()) continue;
    if (p != 0 && p != parts.size() - 1) return false;
    --n;
  }
  return n == i.number("num_paragraphs");
}

bool first_word(const Instruction& i) {
  const Texts parts = split_by(i.answer, "\n\n");
  const int64_t filled =
      std::count_if(parts.begin(), parts.end(), [](const auto& p) { return !stripped(p).empty(); });
  const int64_t nth = i.number("nth_paragraph");
  if (nth < 1 || nth > filled) return false;
  const std::string paragraph = stripped(parts[static_cast<size_t>(nth - 1)]);
  if (paragraph.empty()) return false;
  std::string word = Pattern(R"(\S+)").find_all(paragraph).at(0);
  word.erase(0, std::min(word.find_first_not_of('\''), word.size()));
  word.erase(0, std::min(word.find_first_not_of('"'), word.size()));
  word = lowered(word.substr(0, word.find_first_of(".,?!'\"")));
  return filled == i.number("num_paragraphs") && word == lowered(i.text("first_word"));
}

bool two_responses(const Instruction& i) {
  const Texts parts = split_by(i.answer, "******");
  Texts filled;
  for (size_t p = 0; p < parts.size(); ++p) {
    if (!stripped(parts[p]).empty())
      filled.push_back(stripped(parts[p]));
    else if (p != 0 && p != parts.size() - 1)
      return false;
  }
  return filled.size() == 2 && filled[0] != filled[1];
}

bool is_json(const Instruction& i) {
  std::string text = stripped(i.answer);
  for (const char* fence : {"```json", "```TaskJson", "```JSON", "```"})
    if (text.starts_with(fence)) text.erase(0, std::string_view(fence).size());
  if (text.ends_with("```")) text.resize(text.size() - 3);
  return TaskJson::accept(stripped(text));
}

bool postscript(const Instruction& i) {
  const std::string marker = stripped(i.text("postscript_marker")), text = lowered(i.answer);
  const std::string pattern = marker == "P.P.S"  ? R"(\s*p\.\s?p\.\s?s.*$)"
                              : marker == "P.S." ? R"(\s*p\.\s?s\..*$)"
                                                 : R"(\s*)" + lowered(marker) + ".*$";
  return Pattern(pattern, false, true).found_in(text);
}

bool highlights(const Instruction& i) {
  int64_t n = 0;
  for (const std::string& h : Pattern(R"(\*[^\n\*]*\*)").find_all(i.answer))
    n += stripped(std::string_view(h).substr(1, h.size() - 2)).empty() ? 0 : 1;
  for (const std::string& h : Pattern(R"(\*\*[^\n\*]*\*\*)").find_all(i.answer))
    n += stripped(std::string_view(h).substr(2, h.size() - 4)).empty() ? 0 : 1;
  return n >= i.number("num_highlights");
}

bool title(const Instruction& i) {
  for (const std::string& t : Pattern(R"(<<[^\n]+>>)").find_all(i.answer))
    if (t.find_first_not_of("<> \t") != t.npos) return true;
  return false;
}

bool keywords(const Instruction& i) {
  const Texts words = i.texts("keywords");
  return std::all_of(words.begin(), words.end(), [&](const auto& w) { return i.matches(w, true) > 0; });
}

bool forbidden(const Instruction& i) {
  const Texts words = i.texts("forbidden_words");
  return std::none_of(words.begin(), words.end(),
                      [&](const auto& w) { return i.matches(R"(\b)" + w + R"(\b)", true) > 0; });
}

bool letters(const Instruction& i) {
  const std::string letter = lowered(stripped(i.text("letter"))), text = lowered(i.answer);
  if (letter.size() != 1)
    fail("{}: 'letter' of '{}' must be one letter, found '{}'", i.where, i.name, letter);
  return i.compare(std::count(text.begin(), text.end(), letter[0]), "let_relation", "let_frequency");
}

bool quoted(const Instruction& i) {
  const std::string text = stripped(i.answer);
  return text.size() > 1 && text.front() == '"' && text.back() == '"';
}

bool ends_with_phrase(const Instruction& i) {
  std::string text = stripped(i.answer);
  text.erase(0, std::min(text.find_first_not_of('"'), text.size()));
  text.resize(text.find_last_not_of('"') + 1);
  return lowered(text).ends_with(lowered(stripped(i.text("end_phrase"))));
}

bool one_of_the_options(const Instruction& i) {
  for (const char* option : {"My answer is yes.", "My answer is no.", "My answer is maybe."})
    if (i.answer.find(option) != std::string::npos) return true;
  return false;
}

using Checker = std::function<bool(const Instruction&)>;

const std::map<std::string, Checker>& instruction_checkers() {
  static const std::map<std::string, Checker> all = {
      {"keywords:existence", keywords},
      {"keywords:forbidden_words", forbidden},
      {"keywords:frequency",
       [](const auto& i) {
         return i.compare(i.matches(stripped(i.text("keyword")), true), "relation", "frequency");
       }},
      {"keywords:letter_frequency", letters},
      {"length_constraints:number_sentences",
       [](const auto& i) { return i.compare(sentences(i.answer), "relation", "num_sentences"); }},
      {"length_constraints:number_words",
       [](const auto& i) { return i.compare(i.matches(R"(\w+)"), "relation", "num_words"); }},
      {"length_constraints:number_paragraphs", paragraphs},
      {"length_constraints:nth_paragraph_first_word", first_word},
      {"detectable_content:number_placeholders",
       [](const auto& i) { return i.matches(R"(\[.*?\])") >= i.number("num_placeholders"); }},
      {"detectable_content:postscript", postscript},
      {"detectable_format:number_bullet_lists",
       [](const auto& i) {
         return i.matches(R"(^\s*\*[^\*].*$)", false, true) + i.matches(R"(^\s*-.*$)", false, true) ==
                i.number("num_bullets");
       }},
      {"detectable_format:constrained_response", one_of_the_options},
      {"detectable_format:number_highlighted_sections", highlights},
      {"detectable_format:multiple_sections",
       [](const auto& i) {
         return i.matches(R"(\s?)" + stripped(i.text("section_spliter")) + R"(\s?\d+\s?)") >=
                i.number("num_sections");
       }},
      {"detectable_format:json_format", is_json},
      {"detectable_format:title", title},
      {"combination:two_responses", two_responses},
      {"combination:repeat_prompt",
       [](const auto& i) {
         return lowered(stripped(i.answer)).starts_with(lowered(stripped(i.text("prompt_to_repeat"))));
       }},
      {"startend:end_checker", ends_with_phrase},
      {"startend:quotation", quoted},
      {"change_case:english_capital", [](const auto& i) { return all_case(i.answer, true); }},
      {"change_case:english_lowercase", [](const auto& i) { return all_case(i.answer, false); }},
      {"change_case:capital_word_frequency",
       [](const auto& i) {
         return i.compare(capital_words(i.answer), "capital_relation", "capital_frequency");
       }},
      {"punctuation:no_comma", [](const auto& i) { return i.answer.find(',') == std::string::npos; }},
  };
  return all;
}

/// The answer, and without its first line, its last, both; each with and without asterisks.
Texts loose_forms(const std::string& answer) {
  const size_t first = answer.find('\n'), last = answer.rfind('\n');
  const bool lines = first != answer.npos;
  Texts forms = {
      answer, lines ? stripped(std::string_view(answer).substr(first + 1)) : "",
      lines ? stripped(std::string_view(answer).substr(0, last)) : "",
      lines && last > first ? stripped(std::string_view(answer).substr(first + 1, last - first - 1)) : ""};
  for (size_t i = 0; i < 4; ++i) {
    forms.push_back(forms[i]);
    std::erase(forms.back(), '*');
  }
  return forms;
}

}  // namespace

std::vector<std::string> instruction_names() {
  Texts names;
  for (const auto& [name, check] : instruction_checkers()) names.push_back(name);
  return names;
}

bool follows_instruction(const std::string& name, const TaskJson& arguments, const std::string& answer,
                         const std::string& where) {
  const auto found = instruction_checkers().find(name);
  if (found == instruction_checkers().end()) {
    std::string known;
    for (const std::string& n : instruction_names()) known += (known.empty() ? "" : ", ") + n;
    throw Error(fmt::format("{}: there is no check for the instruction '{}'", where, name),
                "known: " + known);
  }
  const bool follows =
      found->second(Instruction{name, arguments, answer, where});  // its arguments are checked
  return follows && !stripped(answer).empty();
}

TaskJson instruction_metrics(const TaskJson& row, const std::string& answer, const std::string& where) {
  const TaskJson& names = row_list(row, "instruction_id_list", where);
  const TaskJson& arguments = row_list(row, "kwargs", where);
  if (names.size() != arguments.size() || names.empty())
    fail("{}: instruction_id_list has {} entries and kwargs {}, expected as many, at least one", where,
         names.size(), arguments.size());
  const Texts forms = loose_forms(answer);
  TaskJson strict = TaskJson::array(), loose = TaskJson::array();
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i].is_string())
      fail("{}: instruction_id_list holds {}, expected names", where, names[i].type_name());
    const auto follows = [&](const std::string& form) {
      return follows_instruction(names[i].get<std::string>(), arguments[i], form, where);
    };
    strict.push_back(follows(answer));
    loose.push_back(std::any_of(forms.begin(), forms.end(), follows));
  }
  const auto all = [](const TaskJson& list) {
    return std::find(list.begin(), list.end(), false) == list.end();
  };
  return {{"prompt_level_strict_acc", all(strict)},
          {"inst_level_strict_acc", strict},
          {"prompt_level_loose_acc", all(loose)},
          {"inst_level_loose_acc", loose}};
}

}  // namespace ingot
