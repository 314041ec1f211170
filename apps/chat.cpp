// `ingot chat`: each line is appended to a text that the model continues. Nothing that is typed ends the
// session but /quit and the end of the input.
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <iostream>
#include <utility>

#include "apps/inference.h"
#include "base/error.h"
#include "base/terminal_text.h"

namespace ingot {
namespace {

constexpr const char* kHelp =
    "  /reset       forget the text and begin a new one; an empty line does the same\n"
    "  /seed N      seed of the sampling from now on\n"
    "  /help        this list\n"
    "  /quit        end; Ctrl-D does the same\n"
    "Ctrl-C ends an answer. A line that begins with // is text that begins with /.\n";

volatile sig_atomic_t interrupts = 0;  // since the last answer or prompt began

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

/// Lines of standard input, with what interrupts the wait for one.
class Lines {
 public:
  enum class Found { line, end, interrupt };
  Found next(std::string& line) {
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

 private:
  std::string held_;
};

class Chat {
 public:
  explicit Chat(Session session) : s_(std::move(session)), engine_(s_.engine()) {}

  int run() {
    note_interrupts();
    note(
        "Type text: the model continues it (no chat template is applied). /help lists commands, Ctrl-D "
        "ends.\n");
    Lines lines;
    std::string line;
    for (bool again = false;;) {
      if (::isatty(STDIN_FILENO) == 1) note("> ");
      const Lines::Found found = lines.next(line);
      interrupts = 0;
      if (found == Lines::Found::interrupt) {
        if (again || ::isatty(STDIN_FILENO) != 1) return 130;
        note("\n(Ctrl-D or /quit ends; Ctrl-C again does too)\n");
        again = true;
        continue;
      }
      again = false;
      if (line.ends_with('\r')) line.pop_back();
      if (found == Lines::Found::end || !obey(line)) break;
    }
    if (::isatty(STDIN_FILENO) == 1) note("\n");
    return 0;
  }

 private:
  /// Everything but the model's text: it stays out of a file or pipe that the answers go to.
  static void note(const std::string& text) {
    (::isatty(STDOUT_FILENO) == 1 ? std::cout : std::cerr) << terminal_text(text) << std::flush;
  }
  int64_t context() const { return s_.model.model().config().context; }
  void reset() { text_.clear(); }

  /// False: the session ends.
  bool obey(const std::string& line) {
    if (line.empty() || line == "/reset") {
      reset();
      note("(reset)\n");
    } else if (line == "/quit") {
      return false;
    } else if (line == "/help") {
      note(kHelp);
    } else if (line.starts_with("/seed")) {
      set_seed(line.substr(5));
    } else if (line[0] == '/' && !line.starts_with("//")) {
      note(fmt::format("(there is no command '{}'; /help lists them)\n", line));
    } else {
      answer(line.substr(line[0] == '/' ? 1 : 0));
    }
    return true;
  }

  void set_seed(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    uint64_t seed = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
    if (error != std::errc{} || end != text.data() + text.size())
      return note("(/seed takes a whole number, 0 or more, as in: /seed 7)\n");
    s_.request.sampling.seed = seed;
    note(fmt::format("(seed {})\n", seed));
  }

  /// The line as ids, or nothing after a note that says why it cannot be.
  std::vector<int32_t> ids_of(const std::string& line, bool begins) {
    try {
      const bool known = spelled_.count() > 0;
      std::vector<int32_t> ids = s_.encode(line, begins, spelled_);
      if (!known && spelled_.count() > 0)
        note("(warning: " + spelled_.warning(s_.tokenizer, "the line", "--special") + ")\n");
      return ids;
    } catch (const Error& e) {  // a character tokenizer without one of the characters
      note(fmt::format("(not added: {})\n", e.what()));
      return {};
    }
  }

  void answer(const std::string& line) {
    std::vector<int32_t> ids = ids_of(line, text_.empty());
    if (ids.empty()) return;
    const auto count = [&] { return static_cast<int64_t>(ids.size()); };
    const auto before = [&] { return static_cast<int64_t>(text_.size()); };
    // An answer that is cut short is worth less than one without the text before it.
    const int64_t least = std::min(s_.request.max_tokens, context() / 4);
    if (before() > 0 && before() + count() + least > context()) {
      reset();
      note("(context full: conversation reset)\n");
      ids = ids_of(line, true);
    }
    if (count() >= context())
      return note(fmt::format("(not added: the line has {} tokens, and the model's context is {})\n", count(),
                              context()));
    text_.insert(text_.end(), ids.begin(), ids.end());
    const Finished end = continue_text();
    note(end_of(end));
    interrupts = 0;
  }

  /// Shows an answer while it is made, and adds it to the text.
  Finished continue_text() {
    Request request = s_.request;
    request.prompt = text_;
    Finished end;
    bool any = false;
    const auto say = [&](const std::string& text) {
      any |= !text.empty();
      std::cout << text_for(STDOUT_FILENO, text) << std::flush;
    };
    const RequestId id = engine_->submit(std::move(request), {.token =
                                                                  [&](const TokenEvent& e) {
                                                                    if (!e.stop) text_.push_back(e.id);
                                                                    say(e.text);
                                                                  },
                                                              .finished =
                                                                  [&](const Finished& f) {
                                                                    say(f.text);
                                                                    end = f;
                                                                  }});
    while (engine_->step())
      if (interrupts != 0) engine_->cancel(id);
    if (any) std::cout << "\n" << std::flush;
    if (end.reason == FinishReason::failed) throw Error(end.error, end.hint);
    any_ = any;
    return end;
  }

  std::string end_of(const Finished& end) const {
    switch (end.reason) {
      case FinishReason::stop_id:
        return any_ ? "(end of text)\n" : "(empty answer: the model ends the text here)\n";
      case FinishReason::max_tokens:
        return fmt::format("(budget reached: {} tokens; --max-tokens changes it)\n", s_.request.max_tokens);
      case FinishReason::context:
        return fmt::format("(context full: {} tokens)\n", context());
      case FinishReason::cancelled:
        return "(interrupted)\n";
      case FinishReason::stop_string:
      case FinishReason::failed:
        break;
    }
    return "";
  }

  Session s_;
  std::unique_ptr<Engine> engine_;
  std::vector<int32_t> text_;  ///< all ids so far
  bool any_ = false;           ///< the last answer had text
  SpelledSpecials spelled_;
};

}  // namespace

void add_chat_command(CLI::App& app, int& code) {
  auto o = std::make_shared<InferenceArguments>();
  CLI::App* c = app.add_subcommand("chat", "chat with a model: it continues what you type");
  add_inference_options(c, *o);
  c->callback([o, &code] { code = Chat(open_session(*o)).run(); });
}

}  // namespace ingot
