// A parsed Jinja template. It never changes; render() may be called from many threads at once.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/interpreter.h"
#include "chat/jinja/parser.h"

namespace ingot::chat::jinja {

class Template {
 public:
  /// `name` stands for the file in messages. Errors: parser.h.
  Template(std::string_view source, std::string name, const Limits& limits = {})
      : name_(std::move(name)), limits_(limits), statements_(parse_template(source, name_, limits_)) {}

  /// `now` is what strftime_now tells, in Unix seconds. Errors: interpreter.h.
  Text render(std::vector<std::pair<std::string, Value>> variables, int64_t now) const {
    return Interpreter(name_, limits_, now).render(statements_, std::move(variables));
  }

 private:
  std::string name_;
  Limits limits_;
  Statements statements_;
};

}  // namespace ingot::chat::jinja
