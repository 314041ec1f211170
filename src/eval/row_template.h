// Texts of a task with fields of a row: "Question: {{question}}\nAnswer:". {{name}} is the row's field,
// {{name.0}} an element of a list, {{name.key}} of an object; nothing else is special. The same text is a
// Jinja template with the same result. Immutable; thread-safe.
#pragma once
#include <string>
#include <vector>

#include "eval/python_text.h"

namespace ingot {

class RowTemplate {
 public:
  RowTemplate() = default;
  /// Throws Error for a brace pair that is not closed, or that holds more than a name.
  explicit RowTemplate(const std::string& text);
  /// Throws Error that names the field which `row` lacks, and the fields it has; `where` names the row.
  std::string render(const TaskJson& row, const std::string& where) const;

 private:
  struct Part {
    std::string text;  ///< as it is, where `path` is empty
    std::vector<std::string> path;
  };
  std::vector<Part> parts_;
};

/// A field of a row by its path; Error as render()'s.
const TaskJson& row_field(const TaskJson& row, const std::vector<std::string>& path,
                          const std::string& where);

}  // namespace ingot
