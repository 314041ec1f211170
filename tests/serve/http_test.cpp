// The HTTP server against clients that keep to the protocol and clients that do not.
#include "serve/http.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "support/http_client.h"

namespace ingot::test::http_test {

using namespace serve;
using namespace std::chrono_literals;

/// A server that answers with what it got; /hold keeps the reply, /stream begins one for the test.
class Echo {
 public:
  explicit Echo(HttpLimits limits = {}) : server_("127.0.0.1", 0, limits, refusal) {
    server_.start([this](HttpRequest r, std::shared_ptr<HttpReply> reply) { answer(std::move(r), reply); });
  }
  ~Echo() { server_.close(); }
  static HttpMessage refusal(int status, const std::string& why) { return {status, "text/plain", why, {}}; }
  uint16_t port() const { return server_.port(); }
  HttpServer& server() { return server_; }
  /// The reply of the newest /hold or /stream.
  std::shared_ptr<HttpReply> take() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 30s, [&] { return held_ != nullptr; }));
    return std::exchange(held_, nullptr);
  }
  bool lost(int count) {
    for (int i = 0; i < 3000 && lost_ < count; ++i) std::this_thread::sleep_for(10ms);
    return lost_ >= count;
  }

 private:
  void answer(HttpRequest r, const std::shared_ptr<HttpReply>& reply) {
    if (r.path == "/throw") throw Error("a handler's error");
    if (r.path == "/drop") return;
    if (r.path == "/hold" || r.path == "/stream") {
      reply->when_lost([this] { ++lost_; });
      if (r.path == "/stream") reply->begin_stream("text/plain");
      const std::lock_guard lock(mutex_);
      held_ = reply;
      changed_.notify_all();
      return;
    }
    reply->send({200, "text/plain", r.method + " " + r.path + " " + r.body, {{"X-Host", r.host}}});
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<HttpReply> held_;
  std::atomic<int> lost_{0};
  HttpServer server_;
};

TEST(Http, RepliesStayOnOneConnection) {
  Echo echo;
  HttpClient client(echo.port());
  for (int i = 0; i < 3; ++i) {
    const HttpAnswer a = client.post("/x?y=1", "body" + std::to_string(i));
    EXPECT_EQ(a.status, 200);
    EXPECT_EQ(a.body, "POST /x body" + std::to_string(i)) << "the query is no part of the path";
    EXPECT_EQ(a.fields.at("x-host"), "localhost");
    EXPECT_EQ(a.fields.at("x-content-type-options"), "nosniff");
  }
  // Two requests at once are answered one after the other.
  client.send(http_request("POST", "/a", "1") + http_request("POST", "/b", "2"));
  EXPECT_EQ(client.receive().body, "POST /a 1");
  EXPECT_EQ(client.receive().body, "POST /b 2");
  const HttpAnswer last = client.get("/c", "Connection: close\r\n");
  EXPECT_EQ(last.fields.at("connection"), "close");
  EXPECT_EQ(client.some(5), "");
  HttpClient old(echo.port());
  old.send("GET /old HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.receive().body, "GET /old ");
}

TEST(Http, ChunksExpectationsAndSlowBytes) {
  Echo echo;
  HttpClient client(echo.port());
  client.send(
      "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(client.receive().body, "POST /x abcde");
  client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.some(), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ok");
  EXPECT_EQ(client.receive().body, "POST /x ok");
  for (const char c : http_request("POST", "/slow", "abc")) client.send({&c, 1});
  EXPECT_EQ(client.receive().body, "POST /slow abc");
}

TEST(Http, WhatIsTooLargeOrNoHttpIsRefused) {
  Echo echo({.header_bytes = 2000, .body_bytes = 1000});
  struct Case {
    std::string bytes;
    int status;
  };
  const Case cases[] = {
      {http_request("POST", "/x", std::string(1001, 'x')), 413},
      {"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + std::string(2000, 'x') +
           "\r\n0\r\n\r\n",
       413},
      {"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551615\r\n\r\n", 413},
      {"GET /x HTTP/1.1\r\nX: " + std::string(3000, 'x') + "\r\n\r\n", 431},
      {"GET /" + std::string(3000, 'x') + " HTTP/1.1\r\n\r\n", 431},
      {"hello\r\n\r\n", 400},
      {"GET / HTTP/3.7\r\n\r\n", 400},
      {"GET / HTTP/1.1\nHost: a\n\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400},
      {"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 400},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", 400},
      {std::string("GET /\0 HTTP/1.1\r\n\r\n", 19), 400},
      {std::string(100, '\0') + "\r\n\r\n", 400},
      {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400},
  };
  for (const Case& c : cases) {
    HttpClient client(echo.port());
    client.send(c.bytes);
    HttpAnswer a = client.receive();
    EXPECT_EQ(a.status, c.status) << c.bytes.substr(0, 80) << "\n" << a.body;
    EXPECT_EQ(a.fields["connection"], "close");
    EXPECT_EQ(client.some(10), "") << "the connection ends";
  }
  EXPECT_EQ(http_get(echo.port(), "/still").body, "GET /still ");
}

TEST(Http, BodiesShareABudget) {
  Echo echo({.body_bytes = 1000, .bodies_bytes = 1500});
  HttpClient first(echo.port());
  first.send("POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(first.some(), "HTTP/1.1 100 Continue\r\n\r\n") << "its part is taken now";
  first.send(std::string(500, 'x'));
  EXPECT_EQ(http_post(echo.port(), "/x", std::string(900, 'y')).status, 429);
  EXPECT_EQ(http_post(echo.port(), "/x", std::string(300, 'y')).status, 200) << "a smaller one fits";
  first.close();
  int status = 0;
  for (int i = 0; i < 3000 && status != 200; ++i) {
    status = http_post(echo.port(), "/x", std::string(900, 'y')).status;
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(status, 200) << "its part is free again";
}

TEST(Http, DeadlinesAndTheNumberOfConnections) {
  Echo echo({.connections = 2, .idle_time = 200ms, .header_time = 200ms, .body_time = 200ms});
  HttpClient idle(echo.port());
  HttpClient half(echo.port());
  half.send("GET / HT");
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(http_get(echo.port(), "/").status, 503);
  EXPECT_EQ(idle.some(10), "");
  EXPECT_EQ(half.some(10), "");
  HttpClient body(echo.port());
  body.send("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n12345");
  EXPECT_EQ(body.some(10), "");
  for (int i = 0; i < 3000 && echo.server().connections() > 0; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(http_get(echo.port(), "/").status, 200);
}

TEST(Http, StreamsArriveAsTheyAreWritten) {
  Echo echo;
  HttpClient client(echo.port());
  client.send(http_request("GET", "/stream", ""));
  const auto reply = echo.take();
  EXPECT_NE(client.some().find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_TRUE(reply->write("one"));
  EXPECT_EQ(client.some(), "3\r\none\r\n");
  EXPECT_TRUE(reply->write("second"));
  EXPECT_EQ(client.some(), "6\r\nsecond\r\n");
  reply->end();
  EXPECT_EQ(client.some(), "0\r\n\r\n");
  EXPECT_EQ(client.get("/next").body, "GET /next ");
  HttpClient old(echo.port());
  old.send("GET /stream HTTP/1.0\r\n\r\n");
  const auto plain = echo.take();
  plain->write("text");
  plain->end();
  EXPECT_EQ(old.receive().body, "text") << "HTTP/1.0 has no chunks: the end is the connection's";
}

TEST(Http, ALostClientIsReported) {
  Echo echo;
  {
    HttpClient client(echo.port());
    client.send(http_request("GET", "/hold", ""));
    const auto reply = echo.take();
    client.close();
    EXPECT_TRUE(echo.lost(1));
    reply->send({200, "text/plain", "nobody reads this", {}});
  }
  HttpClient client(echo.port());
  client.send(http_request("GET", "/stream", ""));
  const auto reply = echo.take();
  client.close();
  EXPECT_TRUE(echo.lost(2));
  EXPECT_FALSE(reply->write("x"));
}

TEST(Http, AClientThatDoesNotReadIsLost) {
  Echo echo({.unread_bytes = 100'000});
  HttpClient client(echo.port(), 4096);
  client.send(http_request("GET", "/stream", ""));
  const auto reply = echo.take();
  int64_t taken = 0;
  while (taken < 100'000'000 && reply->write(std::string(1000, 'x'))) taken += 1000;
  EXPECT_LT(taken, 20'000'000) << "what the system's buffers hold, and 100 kB";
  EXPECT_TRUE(echo.lost(1));
  // A reply that is sent as a whole may be larger, while the client takes some of it now and then.
  HttpClient slow(echo.port());
  slow.send(http_request("GET", "/hold", ""));
  echo.take()->send({200, "text/plain", std::string(3'000'000, 'y'), {}});
  EXPECT_EQ(slow.receive().body.size(), 3'000'000u);
}

TEST(Http, WriteTimeEndsAStalledReply) {
  Echo echo({.write_time = 200ms});
  HttpClient client(echo.port(), 4096);
  client.send(http_request("GET", "/hold", ""));
  echo.take()->send({200, "text/plain", std::string(50'000'000, 'y'), {}});
  for (int i = 0; i < 3000 && echo.server().connections() > 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(echo.server().connections(), 0);
}

TEST(Http, HandlersThatFailAreAnswered) {
  Echo echo;
  HttpClient client(echo.port());
  EXPECT_EQ(client.get("/throw").status, 500);
  EXPECT_EQ(client.get("/drop").status, 500) << "no reply at all";
  EXPECT_EQ(client.get("/fine").status, 200);
  client.send(http_request("HEAD", "/x", ""));
  const std::string head = client.some();
  EXPECT_NE(head.find("Content-Length: 8"), std::string::npos) << head;
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << "no body";
}

TEST(Http, WhereItCannotListen) {
  Echo echo;
  const auto message = [](const std::string& host, uint16_t port) -> std::string {
    try {
      HttpServer server(host, port, {}, Echo::refusal);
    } catch (const Error& e) {
      return std::string(e.what()) + " | " + e.hint();
    }
    return "";
  };
  EXPECT_NE(message("127.0.0.1", echo.port()).find("in use"), std::string::npos);
  EXPECT_NE(message("192.0.2.1", 0).find("cannot listen on 192.0.2.1"), std::string::npos);
  EXPECT_NE(message("no such host", 0).find("cannot listen on 'no such host'"), std::string::npos);
  HttpServer v6("::1", 0, {}, Echo::refusal);
  EXPECT_TRUE(v6.loopback());
}

TEST(Http, ClosingLosesWhoIsThere) {
  auto echo = std::make_unique<Echo>();
  HttpClient held(echo->port()), idle(echo->port());
  held.send(http_request("GET", "/hold", ""));
  auto reply = echo->take();
  echo->server().close();
  EXPECT_TRUE(echo->lost(1));
  EXPECT_EQ(held.some(5), "");
  EXPECT_EQ(idle.some(5), "");
  reply.reset();
}

}  // namespace ingot::test::http_test
