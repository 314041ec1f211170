// `ingot chat`: a conversation in the model's own chat format; without one, each line is appended to a text
// that the model continues. Nothing that is typed ends the session but /quit and the end of the input.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <iostream>
#include <utility>

#include "apps/inference.h"
#include "apps/typed_lines.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/terminal_text.h"
#include "infer/engine.h"

namespace ingot {
namespace {

constexpr const char* kHelp =
    "  /reset       forget what was said; an empty line does the same\n"
    "  /system T    the system's text from now on; without T: shows it\n"
    "  /think X     think before answers: on, off, or how many tokens at most; without X: on\n"
    "  /no_think    the same as /think off\n"
    "  /seed N      seed of the sampling from now on\n"
    "  /save FILE   write what was said\n"
    "  /help        this list\n"
    "  /quit        end; Ctrl-D does the same\n"
    "Ctrl-C ends an answer. A line that begins with // is text that begins with /.\n";

constexpr const char* kDim = "\x1b[2m";
constexpr const char* kPlain = "\x1b[0m";

bool output_is_terminal() {
  return ::isatty(STDOUT_FILENO) == 1;
}

/// Everything but the model's text: it stays out of a file or pipe that the answers go to.
void note(const std::string& text) {
  (output_is_terminal() ? std::cout : std::cerr) << terminal_text(text) << std::flush;
}

/// An answer while it is shown.
class ShownAnswer {
 public:
  void content(const std::string& text) {
    if (text.empty()) return;
    if (std::exchange(thinking_, false)) note("\n");
    any_ = true;
    std::cout << text_for(STDOUT_FILENO, text) << std::flush;
  }
  /// Dim in a terminal, and not a part of the output.
  void reasoning(const std::string& text) {
    if (text.empty()) return;
    if (!std::exchange(thinking_, true)) note("(thinking) ");
    if (output_is_terminal())
      std::cout << kDim << terminal_text(text) << kPlain << std::flush;
    else
      note(text);
  }
  void end() {
    if (thinking_) note("\n");
    if (any_) std::cout << "\n" << std::flush;
  }
  bool any() const { return any_; }

 private:
  bool any_ = false, thinking_ = false;
};

class Chat {
 public:
  explicit Chat(Session session) : s_(std::move(session)), engine_(s_.engine()) {}

  int run() {
    note(s_.chat_template ? "Type a message: the model answers. /help lists commands, Ctrl-D ends.\n"
                          : "Type text: the model continues it (it has no chat template). /help lists "
                            "commands, Ctrl-D ends.\n");
    TypedLines lines;
    std::string line;
    for (bool again = false;;) {
      const TypedLines::Found found = lines.next("> ", line);
      TypedLines::forget_interrupt();
      if (found == TypedLines::Found::interrupt) {
        if (again || !TypedLines::terminal()) return 130;
        note("\n(Ctrl-D or /quit ends; Ctrl-C again does too)\n");
        again = true;
        continue;
      }
      again = false;
      if (line.ends_with('\r')) line.pop_back();
      if (found == TypedLines::Found::end || !obey(line)) break;
    }
    if (TypedLines::terminal()) note("\n");
    return 0;
  }

 private:
  int64_t context() const { return s_.model.model().config().context; }
  /// New tokens without which an answer is worth less than the beginning of the conversation.
  int64_t least() const { return std::min(s_.request.max_tokens, context() / 4); }

  /// False: the session ends.
  bool obey(const std::string& line) {
    const auto is = [&](std::string_view name) {
      return line == name || (line.starts_with(name) && line[name.size()] == ' ');
    };
    const size_t space = std::min(line.find(' '), line.size());
    const std::string argument = line.substr(std::min(line.find_first_not_of(' ', space), line.size()));
    if (line.empty() || line == "/reset")
      reset();
    else if (line == "/quit")
      return false;
    else if (line == "/help")
      note(kHelp);
    else if (is("/seed"))
      set_seed(argument);
    else if (is("/system"))
      set_system(argument);
    else if (is("/think"))
      set_thinking(argument.empty() ? "on" : argument);
    else if (line == "/no_think")
      set_thinking("off");
    else if (is("/save"))
      save(argument);
    else if (line[0] == '/' && !line.starts_with("//"))
      note(fmt::format("(there is no command '{}'; /help lists them)\n", line));
    else
      try {
        const std::string text = line.substr(line[0] == '/' ? 1 : 0);
        s_.chat_template ? answer_message(text) : continue_text(text);
      } catch (const Error& e) {  // of the template: what it refuses
        note(fmt::format("(no answer: {})\n", e.what()));
      }
    if (failed_) throw *failed_;
    return true;
  }

  void reset() {
    text_.clear();
    said_.messages.clear();
    if (system_) said_.messages.push_back(chat::text_message("system", *system_));
    note("(reset)\n");
  }

  void set_seed(std::string_view text) {
    uint64_t seed = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
    if (error != std::errc{} || end != text.data() + text.size())
      return note("(/seed takes a whole number, 0 or more, as in: /seed 7)\n");
    s_.request.sampling.seed = seed;
    note(fmt::format("(seed {})\n", seed));
  }

  void set_system(const std::string& text) {
    if (!s_.chat_template) return note("(the model has no chat template, so no system text)\n");
    if (text.empty()) return note(fmt::format("(system text: {})\n", system_.value_or("none")));
    auto& messages = said_.messages;
    if (system_ && !messages.empty()) messages.erase(messages.begin());
    system_ = text;
    messages.insert(messages.begin(), chat::text_message("system", text));
    note("(system text set)\n");
  }

  void set_thinking(std::string_view text) {
    if (!s_.chat_template || s_.chat_template->reply_format().think_close.empty())
      return note("(the model's chat format has no thinking)\n");
    int64_t budget = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), budget);
    if (text == "on" || text == "off") {
      thinks_ = text == "on";
      budget_ = -1;
    } else if (error == std::errc{} && end == text.data() + text.size() && budget >= 0) {
      thinks_ = true;
      budget_ = budget;
    } else {
      return note("(/think takes on, off or a number of tokens, as in: /think 200)\n");
    }
    if (!s_.chat_template->knows_thinking() && budget_ < 0)
      return note("(the chat template has no switch for thinking; /think N limits it)\n");
    note(!*thinks_     ? "(thinking off)\n"
         : budget_ < 0 ? "(thinking on)\n"
                       : fmt::format("(thinking on, at most {} tokens)\n", budget_));
  }

  /// A conversation as a row that `ingot finetune` reads; a text as it is. No file is overwritten.
  void save(const std::string& path) {
    FileSystem& fs = real_file_system();
    if (path.empty()) return note("(/save takes a file, as in: /save chat.jsonl)\n");
    if (fs.exists(path)) return note(fmt::format("(not saved: '{}' exists)\n", path));
    try {
      write_file_atomically(
          fs, path,
          s_.chat_template ? chat::write_conversation(said_) + "\n" : s_.tokenizer.decode_bytes(text_));
      note(fmt::format("(saved in '{}')\n", path));
    } catch (const Error& e) {
      note(fmt::format("(not saved: {})\n", e.what()));
    }
  }

  Request request_of(std::vector<int32_t> prompt) const {
    Request r = s_.request;
    r.prompt = std::move(prompt);
    return r;
  }

  /// Runs a request to its end, or to Ctrl-C.
  Finished run_request(Request request, const std::function<void(const TokenEvent&)>& on_token) {
    Finished end;
    bool done = false;
    Sink sink;
    sink.token = on_token;
    sink.finished = [&](const Finished& f) {
      end = f;
      done = true;
    };
    const RequestId id = engine_->submit(std::move(request), std::move(sink));
    while (!done) {
      if (TypedLines::interrupted()) engine_->cancel(id);
      engine_->step();
    }
    TypedLines::forget_interrupt();
    return end;
  }

  void note_end(const Finished& end, bool any) {
    switch (end.reason) {
      case FinishReason::stop_id:
      case FinishReason::stop_string:
        if (!any)
          note("(empty answer: the model ends the text here)\n");
        else if (!s_.chat_template)
          note("(end of text)\n");
        break;
      case FinishReason::max_tokens:
        note(fmt::format("(budget reached: {} tokens; --max-tokens changes it)\n", s_.request.max_tokens));
        break;
      case FinishReason::context:
        note(fmt::format("(context full: {} tokens)\n", context()));
        break;
      case FinishReason::cancelled:
        note("(interrupted)\n");
        break;
      case FinishReason::failed:
        failed_ = Error(end.error, end.hint);
        break;
    }
  }

  // ---- A text that grows.

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

  void note_too_long(size_t tokens) const {
    note(fmt::format("(not added: the line has {} tokens, and the model's context is {})\n", tokens,
                     context()));
  }

  /// Drops the oldest tokens, but for the one that begins every text, so that half of the context is free.
  void slide(size_t added) {
    const size_t begin = s_.control.begin && !text_.empty() && text_.front() == *s_.control.begin ? 1 : 0;
    const size_t half = static_cast<size_t>(context()) / 2;
    const size_t keep = std::min(text_.size() - begin, half > added + begin ? half - added - begin : 0);
    const size_t dropped = text_.size() - begin - keep;
    text_.erase(text_.begin() + static_cast<int64_t>(begin),
                text_.begin() + static_cast<int64_t>(begin + dropped));
    note(fmt::format("(context full: the oldest {} tokens are forgotten)\n", dropped));
  }

  void continue_text(const std::string& line) {
    const std::vector<int32_t> ids = ids_of(line, text_.empty());
    if (ids.empty()) return;
    if (static_cast<int64_t>(ids.size()) >= context()) return note_too_long(ids.size());
    if (!text_.empty() && static_cast<int64_t>(text_.size() + ids.size()) + least() > context())
      slide(ids.size());
    text_.insert(text_.end(), ids.begin(), ids.end());
    ShownAnswer shown;
    const Finished end = run_request(request_of(text_), [&](const TokenEvent& e) {
      shown.content(e.text);
      if (!e.stop) text_.push_back(e.id);
    });
    shown.content(end.text);
    shown.end();
    note_end(end, shown.any());
  }

  // ---- A conversation.

  chat::Rendered rendered() const {
    chat::RenderOptions how;
    how.add_generation_prompt = true;
    how.enable_thinking = thinks_;
    return s_.chat_template->render(said_, how);
  }

  /// The conversation as ids; its oldest messages are dropped, but for the system's, until an answer fits.
  std::optional<std::vector<int32_t>> fitted(chat::Rendered& text) {
    auto& messages = said_.messages;
    const auto oldest = messages.begin() + (system_ ? 1 : 0);
    size_t dropped = 0;
    std::vector<int32_t> ids = s_.chat_template->encode(text, s_.tokenizer).ids;
    while (static_cast<int64_t>(ids.size()) + least() > context() && messages.end() - oldest > 2) {
      messages.erase(oldest, oldest + 2);  // what was asked, and the answer
      dropped += 2;
      text = rendered();
      ids = s_.chat_template->encode(text, s_.tokenizer).ids;
    }
    if (dropped > 0) note(fmt::format("(context full: the oldest {} messages are forgotten)\n", dropped));
    if (static_cast<int64_t>(ids.size()) < context()) return ids;
    note_too_long(ids.size());
    return std::nullopt;
  }

  void answer_message(const std::string& line) {
    said_.messages.push_back(chat::text_message("user", line));
    chat::Rendered text;
    std::optional<std::vector<int32_t>> ids;
    try {
      text = rendered();
      ids = fitted(text);
    } catch (const Error&) {
      said_.messages.pop_back();
      throw;
    }
    if (!ids) return said_.messages.pop_back();
    chat::ReplyFormat format = s_.chat_template->reply_format();
    format.tools = chat::ToolStyle::none;
    Request request = request_of(std::move(*ids));
    request.thinking = thinking_budget(format, s_.tokenizer, budget_, text.ends_in_thinking);
    stop_at_turn(request);
    chat::ReplyParser parser(format, text.ends_in_thinking);
    ShownAnswer shown;
    const auto show = [&](const std::vector<chat::ReplyPiece>& pieces) {
      for (const chat::ReplyPiece& p : pieces)
        p.kind == chat::ReplyPiece::Kind::reasoning ? shown.reasoning(p.text) : shown.content(p.text);
    };
    const Finished end =
        run_request(std::move(request), [&](const TokenEvent& e) { show(parser.push(e.text)); });
    show(parser.push(end.text));
    show(parser.finish());
    shown.end();
    note_end(end, shown.any());
    if (shown.any())
      said_.messages.push_back(parser.message());
    else
      said_.messages.pop_back();  // two questions in a row are no conversation
  }

  void stop_at_turn(Request& request) const {
    for (const std::string& mark : s_.chat_template->ends_of_turn()) {
      if (const auto id = s_.tokenizer.special_id(mark))
        request.stop_ids.push_back(*id);
      else
        request.stop_strings.push_back(mark);
    }
  }

  Session s_;
  std::unique_ptr<Engine> engine_;
  SpelledSpecials spelled_;
  std::vector<int32_t> text_;  ///< without a chat template
  chat::Conversation said_;    ///< with one
  std::optional<std::string> system_;
  std::optional<Error> failed_;  ///< of the model, which would fail again
  std::optional<bool> thinks_;   ///< absent: the template's default
  int64_t budget_ = -1;
};

}  // namespace

void add_chat_command(CLI::App& app, int& code) {
  auto o = std::make_shared<InferenceArguments>();
  CLI::App* c =
      app.add_subcommand("chat", "chat with a model in its own format, or let it continue your text");
  add_inference_options(c, *o);
  add_chat_template_option(c, *o);
  c->callback([o, &code] { code = Chat(open_session(*o)).run(); });
}

}  // namespace ingot
