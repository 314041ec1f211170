// See typed_lines.h.
#include "apps/typed_lines.h"

#include <histedit.h>
#include <langinfo.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <cwchar>
#include <string_view>
#include <utility>

#include "base/utf8.h"

namespace ingot {
namespace {

volatile sig_atomic_t interrupts = 0;

/// Ctrl-C is noted; the second one before anybody has looked ends the program.
void note_interrupts() {
  struct sigaction before {};
  ::sigaction(SIGINT, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;
  struct sigaction action {};  // without SA_RESTART: it ends a read()
  action.sa_handler = [](int) {
    if (interrupts != 0) ::_exit(130);
    interrupts = 1;
  };
  ::sigaction(SIGINT, &action, nullptr);
}

/// One character of the terminal for libedit: 1, 0 at the end, -1 where Ctrl-C came instead. libedit's own
/// reader would try again after a signal.
int read_character(EditLine*, wchar_t* character) {
  std::string bytes;
  for (;;) {
    char byte = 0;
    const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
    if (n < 0 && errno == EINTR && interrupts == 0) continue;
    if (n <= 0) return static_cast<int>(n);
    bytes += byte;
    const utf8::Step step = utf8::decode(bytes);
    if (step.status == utf8::Status::cut && bytes.size() < 4) continue;
    *character = step.status == utf8::Status::valid ? static_cast<wchar_t>(step.code_point) : L'?';
    return 1;
  }
}

}  // namespace

struct TypedLines::Editor {
  Editor() : line(::el_init("ingot", stdin, stdout, stderr)), history(::history_init()) {
    HistEvent event;
    ::history(history, &event, H_SETSIZE, 1000);
    ::history(history, &event, H_SETUNIQUE, 1);
    ::el_set(line, EL_CLIENTDATA, this);
    ::el_set(
        line, EL_PROMPT, +[](EditLine* e) -> const char* {
          void* self = nullptr;
          ::el_get(e, EL_CLIENTDATA, &self);
          return static_cast<Editor*>(self)->prompt.c_str();
        });
    ::el_set(line, EL_EDITOR, "emacs");
    ::el_set(line, EL_SIGNAL, 0);
    ::el_set(line, EL_HIST, ::history, history);
    ::el_set(line, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    ::el_source(line, nullptr);  // ~/.editrc
    ::el_set(line, EL_GETCFN, read_character);
  }
  ~Editor() {
    ::history_end(history);
    ::el_end(line);
  }
  EditLine* line;
  History* history;
  std::string prompt;
};

bool TypedLines::terminal() {
  return ::isatty(STDIN_FILENO) == 1;
}
bool TypedLines::interrupted() {
  return interrupts != 0;
}
void TypedLines::forget_interrupt() {
  interrupts = 0;
}

TypedLines::TypedLines() {
  note_interrupts();
  if (!terminal() || ::isatty(STDOUT_FILENO) != 1) return;
  // libedit converts between characters and bytes by the locale. Text of this program is UTF-8 everywhere.
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(::nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
  editor_ = std::make_unique<Editor>();
}

TypedLines::~TypedLines() = default;

TypedLines::Found TypedLines::next(const std::string& prompt, std::string& line) {
  if (!editor_) return next_plain(line);
  editor_->prompt = prompt;
  int count = 0;
  const char* typed = ::el_gets(editor_->line, &count);
  if (interrupts != 0) {
    ::el_reset(editor_->line);
    return Found::interrupt;
  }
  if (typed == nullptr || count <= 0) return Found::end;
  line.assign(typed, std::string_view(typed).find_last_not_of('\n') + 1);
  HistEvent event;
  if (!line.empty()) ::history(editor_->history, &event, H_ENTER, line.c_str());
  return Found::line;
}

TypedLines::Found TypedLines::next_plain(std::string& line) {
  for (size_t searched = 0;;) {
    if (const size_t end = held_.find('\n', searched); end != std::string::npos) {
      line = held_.substr(0, end);
      held_.erase(0, end + 1);
      return Found::line;
    }
    searched = held_.size();
    if (interrupts != 0) return Found::interrupt;
    char buffer[4096];
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      line = std::exchange(held_, {});
      return line.empty() ? Found::end : Found::line;
    }
    held_.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace ingot
