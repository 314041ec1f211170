// See http.h: sockets and the protocol. http_reply.h is what a handler sees of a connection.
#include "serve/http.h"

#include <sys/socket.h>

#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "serve/http_reply.h"

namespace ingot::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using Failure = boost::system::error_code;

constexpr size_t kPiece = 256 << 10;   // bytes of one write
constexpr size_t kDrained = 32 << 20;  // read and dropped after a refusal, so that it arrives
constexpr std::chrono::milliseconds kDrainTime{3000};

class Connection;

/// What all connections share.
struct Shared {
  HttpLimits limits;
  HttpHandler handler;
  HttpRefusal refusal;
  std::atomic<int64_t> bodies{0};
  std::atomic<bool> closing{false};
  std::mutex mutex;
  std::set<Connection*> open;  // under `mutex`
};

/// One client. What it does runs on one executor, one thing after another, so it needs no lock.
class Connection : public Wire, public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, std::shared_ptr<Shared> shared)
      : stream_(std::move(socket)), shared_(std::move(shared)) {
    const std::lock_guard lock(shared_->mutex);
    shared_->open.insert(this);
  }
  ~Connection() {
    const std::lock_guard lock(shared_->mutex);
    shared_->open.erase(this);
  }

  void start() {
    in_order([](Connection& c) { c.await_request(); });
  }
  void refuse_and_close(int status, const std::string& why) {
    in_order([status, why](Connection& c) { c.refuse(status, why); });
  }
  void close() override {
    in_order([](Connection& c) { c.lose(); });
  }

  // For the reply, on any thread.
  void put(std::string bytes) override {
    in_order([bytes = std::move(bytes)](Connection& c) mutable { c.enqueue(std::move(bytes)); });
  }
  void put_last(std::string bytes) override {
    in_order([bytes = std::move(bytes)](Connection& c) mutable {
      c.complete_ = true;
      c.enqueue(std::move(bytes));
    });
  }
  void close_when_sent() override {
    in_order([](Connection& c) { c.keep_ = false; });
  }

  int64_t unread_limit() const override { return limits().unread_bytes; }

 private:
  template <class Body>
  void in_order(Body body) {
    asio::post(stream_.get_executor(),
               [self = shared_from_this(), body = std::move(body)]() mutable { body(*self); });
  }
  auto then(void (Connection::*next)(Failure, size_t)) {
    return [self = shared_from_this(), next](Failure failure, size_t n) { ((*self).*next)(failure, n); };
  }

  void await_request();
  void read_header(Failure failure, size_t n);
  void have_header(Failure failure, size_t);
  void have_body(Failure failure, size_t);
  void read_body();
  void hand_over();
  enum class Peer { sends, silent, closed };
  Peer peer();  // what the client does now, without waiting
  void watch();
  void enqueue(std::string bytes);
  void write_next();
  void wrote(Failure failure, size_t n);
  void replied();
  void refuse(int status, const std::string& why);
  void drain(Failure failure, size_t n);
  bool refused(Failure failure);
  void lose();
  const HttpLimits& limits() const { return shared_->limits; }
  std::string refusal_text(int status, const std::string& why) {
    HttpMessage m = shared_->refusal(status, why);
    return http_head(m, content_length(m.body), false) + m.body;
  }

  beast::tcp_stream stream_;
  std::shared_ptr<Shared> shared_;
  beast::flat_buffer buffer_{1 << 20};
  std::optional<http::request_parser<http::string_body>> parser_;
  std::shared_ptr<void> held_;
  std::shared_ptr<SendQueue> sending_;  // of the reply under way
  std::deque<std::string> queue_;
  size_t sent_ = 0;  // of the queue's first
  bool writing_ = false, complete_ = false, keep_ = false, closing_ = false;
  size_t drained_ = 0;
};

void Connection::await_request() {
  if (shared_->closing) return lose();
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(limits().header_bytes));
  parser_->body_limit(static_cast<uint64_t>(limits().body_bytes));
  if (buffer_.size() > 0) return read_header({}, 0);  // the client did not wait for the reply before
  stream_.expires_after(limits().idle_time);
  stream_.async_read_some(buffer_.prepare(4096), then(&Connection::read_header));
}

void Connection::read_header(Failure failure, size_t n) {
  if (failure || closing_) return lose();
  buffer_.commit(n);
  stream_.expires_after(limits().header_time);
  http::async_read_header(stream_, buffer_, *parser_, then(&Connection::have_header));
}

/// True where HTTP forbids the request; it has been answered then.
bool Connection::refused(Failure failure) {
  if (!failure && !closing_) return false;
  if (closing_ || failure == beast::error::timeout) {  // the stream has closed its socket
    lose();
  } else if (failure == http::error::header_limit) {
    refuse(431, fmt::format("the header is longer than {} bytes", limits().header_bytes));
  } else if (failure == http::error::body_limit) {
    refuse(413, fmt::format("the body is longer than {} bytes", limits().body_bytes));
  } else if (failure.category() == make_error_code(http::error::bad_version).category() &&
             failure != http::error::end_of_stream && failure != http::error::partial_message) {
    refuse(400, "the request is not HTTP/1.1: " + failure.message());
  } else {
    lose();
  }
  return true;
}

void Connection::have_header(Failure failure, size_t) {
  if (refused(failure)) return;
  const auto length = parser_->content_length();
  const int64_t bytes = length               ? static_cast<int64_t>(std::min<uint64_t>(*length, INT64_MAX))
                        : parser_->chunked() ? limits().body_bytes
                                             : 0;
  if (bytes > limits().body_bytes)
    return refuse(413, fmt::format("the body has {} bytes, at most {} are read", bytes, limits().body_bytes));
  if (bytes > 0) {
    if (shared_->bodies.fetch_add(bytes) + bytes > limits().bodies_bytes) {
      shared_->bodies -= bytes;
      return refuse(429, "other requests with large bodies are being read; try again in a second");
    }
    held_ = std::shared_ptr<void>(this, [shared = shared_, bytes](void*) { shared->bodies -= bytes; });
  }
  if (beast::iequals((*parser_).get()[http::field::expect], "100-continue")) {
    static const std::string kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    stream_.expires_after(limits().write_time);
    asio::async_write(stream_, asio::buffer(kContinue), [self = shared_from_this()](Failure f, size_t) {
      f || self->closing_ ? self->lose() : self->read_body();
    });
    return;
  }
  read_body();
}

void Connection::read_body() {
  stream_.expires_after(limits().body_time);
  http::async_read(stream_, buffer_, *parser_, then(&Connection::have_body));
}

void Connection::have_body(Failure failure, size_t) {
  if (refused(failure)) return;
  stream_.expires_never();
  hand_over();
}

void Connection::hand_over() {
  auto message = parser_->release();
  keep_ = message.keep_alive() && !shared_->closing;
  complete_ = false;
  sending_ = std::make_shared<SendQueue>();
  const auto field = [&](http::field name) { return std::string(message[name]); };
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.path = std::string(message.target());
  request.path.resize(std::min(request.path.find('?'), request.path.size()));
  request.host = field(http::field::host);
  request.origin = field(http::field::origin);
  request.authorization = field(http::field::authorization);
  request.held = std::exchange(held_, {});
  request.body = std::move(message.body());
  const auto reply =
      make_reply(shared_from_this(), sending_,
                 {.head_only = request.method == "HEAD", .keep = keep_, .chunks = message.version() >= 11});
  watch();
  shared_->handler(std::move(request), reply);
}

Connection::Peer Connection::peer() {
  char byte;
  const ssize_t n = ::recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n > 0) return Peer::sends;
  return n < 0 && (errno == EAGAIN || errno == EINTR) ? Peer::silent : Peer::closed;
}

/// Waits for the client to close, or to send its next request, which is not read before the reply's end.
void Connection::watch() {
  if (buffer_.size() > 0) return;
  stream_.socket().async_wait(tcp::socket::wait_read,
                              [self = shared_from_this(), of = sending_](Failure failure) {
                                if (failure || of != self->sending_) return;
                                switch (self->peer()) {
                                  case Peer::closed:
                                    return self->lose();
                                  case Peer::silent:  // asio may wake for bytes that were read before
                                    return self->watch();
                                  case Peer::sends:
                                    return;
                                }
                              });
}

void Connection::enqueue(std::string bytes) {
  if (closing_) return;
  if (!bytes.empty()) queue_.push_back(std::move(bytes));
  if (!writing_) write_next();
}

void Connection::write_next() {
  if (queue_.empty()) {
    if (complete_) replied();
    return;
  }
  writing_ = true;
  const std::string& first = queue_.front();
  stream_.expires_after(limits().write_time);
  asio::async_write(stream_, asio::buffer(first.data() + sent_, std::min(kPiece, first.size() - sent_)),
                    then(&Connection::wrote));
}

void Connection::wrote(Failure failure, size_t n) {
  writing_ = false;
  if (failure || closing_) return lose();
  if (sending_) sending_->taken(n);
  sent_ += n;
  if (sent_ == queue_.front().size()) {
    queue_.pop_front();
    sent_ = 0;
  }
  if (queue_.empty()) stream_.expires_never();
  write_next();
}

void Connection::replied() {
  complete_ = false;
  sending_.reset();
  if (drained_ > 0 || !keep_) {
    Failure none;
    stream_.socket().shutdown(tcp::socket::shutdown_send, none);
    stream_.socket().cancel(none);
    stream_.expires_after(kDrainTime);
    return drain({}, 0);
  }
  Failure none;
  stream_.socket().cancel(none);  // the wait of watch()
  in_order([](Connection& c) { c.await_request(); });
}

/// Answers and closes, without reading the rest of the request.
void Connection::refuse(int status, const std::string& why) {
  keep_ = false;
  complete_ = true;
  stream_.expires_never();
  enqueue(refusal_text(status, why));
}

/// Reads on for a while and drops it: closing a socket with unread bytes would take the reply away from the
/// client.
void Connection::drain(Failure failure, size_t n) {
  drained_ += n;
  buffer_.clear();
  if (failure || closing_ || drained_ > kDrained) return lose();
  stream_.async_read_some(buffer_.prepare(16 << 10), then(&Connection::drain));
}

void Connection::lose() {
  closing_ = true;
  Failure none;
  stream_.socket().shutdown(tcp::socket::shutdown_both, none);
  stream_.close();
  if (!writing_) queue_.clear();  // else wrote() comes here again
  held_.reset();
  if (const auto sending = std::exchange(sending_, {})) sending->lose();
}

tcp::endpoint endpoint_of(asio::io_context& context, const std::string& host, uint16_t port) {
  Failure failure;
  const asio::ip::address address = asio::ip::make_address(host, failure);
  if (!failure) return {address, port};
  tcp::resolver resolver(context);
  const auto found = resolver.resolve(host, std::to_string(port), failure);
  if (failure || found.empty())
    throw Error(fmt::format("cannot listen on '{}': {}", host, failure.message()),
                "--host takes an address of this machine, e.g. 127.0.0.1 or 0.0.0.0");
  return found.begin()->endpoint();
}

}  // namespace

struct HttpServer::Impl {
  Impl() : acceptor(asio::make_strand(context)), retry(acceptor.get_executor()) {}

  void listen(const std::string& host, uint16_t port) {
    const tcp::endpoint endpoint = endpoint_of(context, host, port);
    try {
      acceptor.open(endpoint.protocol());
      acceptor.set_option(asio::socket_base::reuse_address(true));
      acceptor.bind(endpoint);
      acceptor.listen();
      bound = acceptor.local_endpoint();
    } catch (const boost::system::system_error& e) {
      throw Error(fmt::format("cannot listen on {} port {}: {}", host, port, e.code().message()),
                  "give another --port (0: any free one) or an address of this machine as --host");
    }
  }
  void accept() {
    acceptor.async_accept(asio::make_strand(context), [this](Failure failure, tcp::socket socket) {
      if (!acceptor.is_open()) return;
      if (failure) {  // out of file descriptors, for example
        retry.expires_after(std::chrono::milliseconds(100));
        retry.async_wait([this](Failure f) { f ? void() : accept(); });
        return;
      }
      serve(std::move(socket));
      accept();
    });
  }
  void serve(tcp::socket socket) {
    Failure none;
    socket.set_option(tcp::no_delay(true), none);
    const auto connection = std::make_shared<Connection>(std::move(socket), shared);
    size_t count = 0;
    {
      const std::lock_guard lock(shared->mutex);
      count = shared->open.size();
    }
    if (static_cast<int>(count) > shared->limits.connections)
      connection->refuse_and_close(503, "too many connections; try again later");
    else
      connection->start();
  }
  void work() {
    for (;;) {
      try {
        context.run();
        return;
      } catch (const std::exception& e) {  // of one handler only
        log::warn("a request failed: {}", e.what());
      }
    }
  }

  asio::io_context context;
  tcp::acceptor acceptor;
  asio::steady_timer retry;  // on the acceptor's executor
  tcp::endpoint bound;
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();
  std::vector<std::thread> threads;
};

HttpServer::HttpServer(const std::string& host, uint16_t port, HttpLimits limits, HttpRefusal refusal)
    : impl_(std::make_unique<Impl>()) {
  impl_->shared->limits = limits;
  impl_->shared->refusal = std::move(refusal);
  impl_->listen(host, port);
}

HttpServer::~HttpServer() {
  close();
}

void HttpServer::start(HttpHandler handler, int threads) {
  impl_->shared->handler = [handler = std::move(handler), refusal = impl_->shared->refusal](
                               HttpRequest request, std::shared_ptr<HttpReply> reply) {
    try {
      handler(std::move(request), reply);
    } catch (const std::exception& e) {
      log::warn("a request failed: {}", e.what());
      reply->send(refusal(500, e.what()));
    }
  };
  impl_->accept();
  for (int i = 0; i < threads; ++i) impl_->threads.emplace_back([this] { impl_->work(); });
}

void HttpServer::close() {
  if (impl_->threads.empty()) return;
  stop_accepting();
  if (connections() > 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // what was written, leaves
  std::vector<std::shared_ptr<Connection>> open;
  {
    const std::lock_guard lock(impl_->shared->mutex);
    for (Connection* c : impl_->shared->open)
      if (auto connection = c->weak_from_this().lock()) open.push_back(std::move(connection));
  }
  for (const auto& c : open) c->close();
  open.clear();
  for (int i = 0; i < 100 && connections() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  impl_->context.stop();
  for (std::thread& t : impl_->threads) t.join();
  impl_->threads.clear();
}

uint16_t HttpServer::port() const {
  return impl_->bound.port();
}
std::string HttpServer::address() const {
  return impl_->bound.address().to_string();
}
bool HttpServer::loopback() const {
  return impl_->bound.address().is_loopback();
}
int HttpServer::connections() const {
  const std::lock_guard lock(impl_->shared->mutex);
  return static_cast<int>(impl_->shared->open.size());
}
void HttpServer::stop_accepting() {
  impl_->shared->closing = true;
  asio::post(impl_->acceptor.get_executor(), [this] {
    Failure none;
    impl_->acceptor.close(none);
    impl_->retry.cancel();
  });
}

}  // namespace ingot::serve
