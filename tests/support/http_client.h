// A client of HTTP that a test can make as rude as it likes: bytes go out as they are given, and replies are
// read from a plain socket.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace ingot::test {

struct HttpAnswer {
  int status = 0;                             ///< 0: the connection ended without a reply
  std::map<std::string, std::string> fields;  ///< names in lower case
  std::string body;                           ///< of chunks: joined
};

class HttpClient {
 public:
  /// Connects to 127.0.0.1. `receive_buffer`: bytes that the system holds for a client that does not read;
  /// 0: its default.
  explicit HttpClient(uint16_t port, int receive_buffer = 0);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// False: the server has closed the connection.
  bool send(std::string_view bytes);
  /// The next reply; waits for up to `seconds`.
  HttpAnswer receive(double seconds = 30);
  /// Some bytes as they come; "" at the end of the connection or after `seconds`.
  std::string some(double seconds = 30);
  HttpAnswer get(const std::string& path, const std::string& fields = "");
  HttpAnswer post(const std::string& path, const std::string& body, const std::string& fields = "");
  void close();

 private:
  bool more(double seconds);
  int socket_ = -1;
  std::string held_;
};

std::string http_request(const std::string& method, const std::string& path, const std::string& body,
                         const std::string& fields = "");

/// One request on a connection of its own.
HttpAnswer http_get(uint16_t port, const std::string& path, const std::string& fields = "");
HttpAnswer http_post(uint16_t port, const std::string& path, const std::string& body,
                     const std::string& fields = "");

}  // namespace ingot::test
