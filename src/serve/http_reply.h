// The reply to one request as its handler sees it: HttpReply over a connection, which is an interface here,
// so that only http.cpp knows of sockets.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "serve/http.h"

namespace ingot::serve {

/// Where a reply's bytes go. Any thread.
class Wire {
 public:
  virtual ~Wire() = default;
  virtual void put(std::string bytes) = 0;
  virtual void put_last(std::string bytes) = 0;  ///< the reply is complete behind them
  virtual void close_when_sent() = 0;
  virtual void close() = 0;
  virtual int64_t unread_limit() const = 0;
};

/// What a reply's owners and its connection share: bytes on their way, and whether the client is lost.
/// Thread-safe.
class SendQueue {
 public:
  /// Adds bytes that wait for the client. False: more than `limit` wait now, or the client is lost.
  bool add(size_t bytes, int64_t limit);
  void taken(size_t bytes) { unread_ -= bytes; }
  bool lost() const { return lost_; }
  void lose();
  void when_lost(std::function<void()> action);
  /// The reply is complete: the action is never called.
  void forget();

 private:
  std::atomic<bool> lost_{false};
  std::atomic<size_t> unread_{0};
  std::mutex mutex_;
  std::function<void()> action_;
};

struct Framing {
  bool head_only;  ///< the request was HEAD
  bool keep;       ///< the connection stays open
  bool chunks;     ///< the client knows chunks: it speaks HTTP/1.1
};

std::shared_ptr<HttpReply> make_reply(std::shared_ptr<Wire> wire, std::shared_ptr<SendQueue> sending,
                                      Framing framing);

/// "Content-Length: 5\r\n".
std::string content_length(const std::string& body);
/// Status line and header fields; `length`: the fields that say how long the body is.
std::string http_head(const HttpMessage& message, const std::string& length, bool keep);

}  // namespace ingot::serve
