// An HTTP/1.1 server for small requests and long answers: reads whole requests within limits, hands each to a
// handler, and sends its reply, whole or as a stream. Parsing and sockets are Boost.Beast's and Asio's
// (references: RFC 9112); http.cpp is the only file that includes them.
//
// What a client can do wrong costs that client only: headers and bodies have sizes and deadlines, bodies
// share a budget, a client that does not read a stream loses it, and one that goes away is reported to the
// handler.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ingot::serve {

struct HttpLimits {
  int64_t header_bytes = 16 << 10;  ///< more: 431
  int64_t body_bytes = 8 << 20;     ///< more: 413
  int64_t bodies_bytes = 64 << 20;  ///< bodies of all requests that are read or answered; more: 429
  int64_t unread_bytes = 1 << 20;   ///< of a stream, that the client has not taken; more: the client is lost
  int connections = 512;            ///< more: 503
  std::chrono::milliseconds idle_time{60'000};    ///< between requests
  std::chrono::milliseconds header_time{10'000};  ///< from a request's first byte to the end of its header
  std::chrono::milliseconds body_time{60'000};    ///< then to the end of its body; later: closed
  std::chrono::milliseconds write_time{30'000};   ///< in which a client must take the next 256 KiB
};

struct HttpRequest {
  std::string method;  ///< "GET", "POST", ...
  std::string path;    ///< as sent, without the query; begins with '/'
  std::string host;    ///< header fields; empty where absent
  std::string origin;
  std::string authorization;
  std::string body;
  std::shared_ptr<void> held;  ///< the body's part of bodies_bytes
};

using HttpFields = std::vector<std::pair<std::string, std::string>>;

struct HttpMessage {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpFields fields = {};  ///< further header fields
};

/// The reply to one request: send() once, or begin_stream(), any number of write() and end(). Thread-safe.
/// The last owner lets go of it without a reply: the client gets 500; in a stream: its connection is
/// closed.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  virtual void send(HttpMessage message) = 0;
  virtual void begin_stream(std::string content_type) = 0;
  /// False: the client is lost; nothing more needs to be written.
  virtual bool write(std::string bytes) = 0;
  virtual void end() = 0;
  /// `action` is called once, from any thread, if the client closes its connection before the reply's end or
  /// does not read: at once if that has happened already. It holds no lock of the server's.
  virtual void when_lost(std::function<void()> action) = 0;
};

/// Called on one of the server's threads. What it throws becomes 500 with the message.
using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpReply>)>;
/// The reply to a request that HTTP itself refuses: its status and a sentence.
using HttpRefusal = std::function<HttpMessage(int status, const std::string& why)>;

class HttpServer {
 public:
  /// Listens on a host (an address or a name) and port; 0: any free one. Throws Error where it cannot.
  /// Clients wait until start().
  HttpServer(const std::string& host, uint16_t port, HttpLimits limits, HttpRefusal refusal);
  ~HttpServer();  ///< close()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  void start(HttpHandler handler, int threads = 2);
  /// No new connections and no further requests on open ones; replies that are under way continue.
  void stop_accepting();
  /// Closes every connection and waits for the handlers that run; none is called afterwards. Replies may
  /// outlive this but not the server.
  void close();

  uint16_t port() const;
  /// The address that it listens on, "127.0.0.1" or "::1".
  std::string address() const;
  bool loopback() const;
  int connections() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ingot::serve
