// See http_reply.h.
#include "serve/http_reply.h"

#include "base/error.h"

namespace ingot::serve {
namespace {

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Payload Too Large";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Error";
  }
}

class ConnectionReply : public HttpReply {
 public:
  ConnectionReply(std::shared_ptr<Wire> wire, std::shared_ptr<SendQueue> sending, Framing framing)
      : wire_(std::move(wire)), sending_(std::move(sending)), framing_(framing) {}
  ~ConnectionReply() override {
    if (state_ == State::none) send({500, "text/plain", "the request got no reply\n", {}});
    if (state_ == State::stream) wire_->close();
  }

  void send(HttpMessage m) override {
    const std::lock_guard lock(mutex_);
    INGOT_CHECK(state_ == State::none, "a second reply to one request");
    std::string text = http_head(m, content_length(m.body), framing_.keep);
    if (!framing_.head_only) text += m.body;
    finish(std::move(text));
  }
  void begin_stream(std::string content_type) override {
    const std::lock_guard lock(mutex_);
    INGOT_CHECK(state_ == State::none, "a second reply to one request");
    state_ = State::stream;
    if (!framing_.chunks) wire_->close_when_sent();
    const HttpMessage m{200, std::move(content_type), "", {}};
    put(http_head(m, framing_.chunks ? "Transfer-Encoding: chunked\r\n" : "",
                  framing_.keep && framing_.chunks));
  }
  bool write(std::string bytes) override {
    const std::lock_guard lock(mutex_);
    INGOT_CHECK(state_ == State::stream, "a write outside a stream");
    if (bytes.empty() || framing_.head_only) return !sending_->lost();
    return put(framing_.chunks ? fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes) : std::move(bytes));
  }
  void end() override {
    const std::lock_guard lock(mutex_);
    INGOT_CHECK(state_ == State::stream, "the end of no stream");
    finish(framing_.chunks && !framing_.head_only ? "0\r\n\r\n" : "");
  }
  void when_lost(std::function<void()> action) override { sending_->when_lost(std::move(action)); }

 private:
  void finish(std::string bytes) {
    state_ = State::done;
    sending_->forget();
    sending_->add(bytes.size(), INT64_MAX);
    wire_->put_last(std::move(bytes));
  }
  bool put(std::string bytes) {
    if (!sending_->add(bytes.size(), wire_->unread_limit())) {
      wire_->close();
      return false;
    }
    wire_->put(std::move(bytes));
    return true;
  }
  enum class State { none, stream, done };
  const std::shared_ptr<Wire> wire_;
  const std::shared_ptr<SendQueue> sending_;
  const Framing framing_;
  std::mutex mutex_;
  State state_ = State::none;
};

}  // namespace

bool SendQueue::add(size_t bytes, int64_t limit) {
  return !lost_ && static_cast<int64_t>(unread_ += bytes) <= limit;
}

void SendQueue::lose() {
  std::function<void()> action;
  {
    const std::lock_guard lock(mutex_);
    if (lost_.exchange(true)) return;
    action = std::move(action_);
  }
  if (action) action();
}

void SendQueue::when_lost(std::function<void()> action) {
  {
    const std::lock_guard lock(mutex_);
    if (!lost_) {
      action_ = std::move(action);
      return;
    }
  }
  action();
}

void SendQueue::forget() {
  const std::lock_guard lock(mutex_);
  action_ = {};
}

std::shared_ptr<HttpReply> make_reply(std::shared_ptr<Wire> wire, std::shared_ptr<SendQueue> sending,
                                      Framing framing) {
  return std::make_shared<ConnectionReply>(std::move(wire), std::move(sending), framing);
}

std::string content_length(const std::string& body) {
  return fmt::format("Content-Length: {}\r\n", body.size());
}

std::string http_head(const HttpMessage& m, const std::string& length, bool keep) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n{}Connection: {}\r\n", m.status,
                                 reason_of(m.status), m.content_type, length, keep ? "keep-alive" : "close");
  for (const auto& [name, value] : m.fields) head += name + ": " + value + "\r\n";
  return head + "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n\r\n";
}

}  // namespace ingot::serve
