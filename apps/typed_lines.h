// Lines that a person types: with editing and a history in a terminal (libedit), as they are from a file or
// pipe. Ctrl-C is noted, and ends nothing by itself. One object at a time, one thread.
#pragma once
#include <memory>
#include <string>

namespace ingot {

class TypedLines {
 public:
  TypedLines();
  ~TypedLines();
  TypedLines(const TypedLines&) = delete;
  TypedLines& operator=(const TypedLines&) = delete;

  enum class Found { line, end, interrupt };
  /// Waits for a line; a terminal shows `prompt` before it.
  Found next(const std::string& prompt, std::string& line);
  /// Standard input is a terminal.
  static bool terminal();

  /// Ctrl-C has come since the last call of forget_interrupt(). A second one before that ends the program.
  static bool interrupted();
  static void forget_interrupt();

 private:
  struct Editor;
  Found next_plain(std::string& line);
  std::unique_ptr<Editor> editor_;  ///< where both ends are a terminal
  std::string held_;
};

}  // namespace ingot
