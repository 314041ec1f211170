// See http_client.h.
#include "support/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace ingot::test {

HttpClient::HttpClient(uint16_t port, int receive_buffer) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  if (receive_buffer > 0)
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) close();
}

HttpClient::~HttpClient() {
  close();
}

void HttpClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

bool HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool HttpClient::more(double seconds) {
  pollfd wait{socket_, POLLIN, 0};
  if (socket_ < 0 || ::poll(&wait, 1, static_cast<int>(seconds * 1000)) <= 0) return false;
  char buffer[65536];
  const ssize_t n = ::recv(socket_, buffer, sizeof buffer, 0);
  if (n <= 0) return false;
  held_.append(buffer, static_cast<size_t>(n));
  return true;
}

std::string HttpClient::some(double seconds) {
  if (held_.empty()) more(seconds);
  return std::exchange(held_, {});
}

HttpAnswer HttpClient::receive(double seconds) {
  HttpAnswer a;
  const auto end_of = [&](const char* mark, size_t from) {
    size_t at;
    while ((at = held_.find(mark, from)) == std::string::npos)
      if (!more(seconds)) return std::string::npos;
    return at;
  };
  const size_t end = end_of("\r\n\r\n", 0);
  if (end == std::string::npos || !held_.starts_with("HTTP/1.1 ")) return a;
  a.status = std::stoi(held_.substr(9, 3));
  for (size_t line = held_.find("\r\n") + 2; line < end;) {
    const size_t stop = held_.find("\r\n", line), colon = held_.find(':', line);
    std::string name = held_.substr(line, colon - line);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    a.fields[name] = held_.substr(colon + 2, stop - colon - 2);
    line = stop + 2;
  }
  held_.erase(0, end + 4);
  if (a.status == 100) return receive(seconds);
  if (a.fields.contains("content-length")) {
    const size_t bytes = std::stoull(a.fields["content-length"]);
    while (held_.size() < bytes)
      if (!more(seconds)) break;
    a.body = held_.substr(0, bytes);
    held_.erase(0, bytes);
  } else if (a.fields.contains("transfer-encoding")) {
    for (;;) {
      const size_t line = end_of("\r\n", 0);
      if (line == std::string::npos) return a.status = 0, a;  // cut off
      const size_t bytes = std::stoull(held_.substr(0, line), nullptr, 16);
      while (held_.size() < line + 2 + bytes + 2)
        if (!more(seconds)) return a.status = 0, a;
      a.body += held_.substr(line + 2, bytes);
      held_.erase(0, line + 2 + bytes + 2);
      if (bytes == 0) break;
    }
  } else {
    while (more(seconds)) {
    }
    a.body = std::exchange(held_, {});
  }
  return a;
}

std::string http_request(const std::string& method, const std::string& path, const std::string& body,
                         const std::string& fields) {
  std::string text = method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + fields;
  if (!body.empty() || method == "POST")
    text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  return text + "\r\n" + body;
}

HttpAnswer HttpClient::get(const std::string& path, const std::string& fields) {
  send(http_request("GET", path, "", fields));
  return receive();
}
HttpAnswer HttpClient::post(const std::string& path, const std::string& body, const std::string& fields) {
  send(http_request("POST", path, body, fields));
  return receive();
}

HttpAnswer http_get(uint16_t port, const std::string& path, const std::string& fields) {
  return HttpClient(port).get(path, fields);
}
HttpAnswer http_post(uint16_t port, const std::string& path, const std::string& body,
                     const std::string& fields) {
  return HttpClient(port).post(path, body, fields);
}

}  // namespace ingot::test
