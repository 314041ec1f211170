// What the fuzzers of the server's inputs run, and what CI replays over their corpora: one input each,
// which must be read or refused, and never more.
#pragma once
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "serve/api_error.h"
#include "serve/http.h"
#include "serve/json_fields.h"
#include "serve/openai_request.h"

namespace ingot::fuzz {

/// A body as each of the API's requests; the first byte chooses which.
inline void json_request(std::string_view input) {
  if (input.empty()) return;
  const char kind = input.front();
  input.remove_prefix(1);
  try {
    const nlohmann::json body = serve::parse_body(input);
    switch (kind % 4) {
      case 0:
        serve::read_completion(body, 1000);
        break;
      case 1:
        serve::read_chat(body);
        break;
      case 2:
        serve::read_tokenize(body);
        break;
      default:
        serve::read_detokenize(body, 1000);
        break;
    }
  } catch (const serve::ApiError& e) {
    if (nlohmann::json::parse(serve::error_json(e))["error"]["message"].get<std::string>().empty())
      std::abort();
  }
}

/// Bytes of a client, sent to a server whose handler sends the request back. What comes must be a reply of
/// HTTP, or nothing.
inline void http_request(std::string_view input) {
  using namespace serve;
  static HttpServer* server = [] {
    const auto refusal = [](int status, const std::string& why) {
      return HttpMessage{status, "text/plain", why, {}};
    };
    auto* s = new HttpServer("127.0.0.1", 0, {.header_bytes = 1024, .body_bytes = 4096}, refusal);
    s->start([](HttpRequest r, std::shared_ptr<HttpReply> reply) {
      if (r.path == "/stream") {
        reply->begin_stream("text/plain");
        reply->write(r.body);
        return reply->end();
      }
      reply->send({200, "text/plain", r.method + r.path + r.host + r.origin + r.authorization + r.body, {}});
    });
    return s;
  }();
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(server->port());
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // From one address, a thousand connections a second would use up the ports, which stay taken for a minute.
  static uint32_t connections = 0;
  sockaddr_in from{};
  from.sin_family = AF_INET;
  from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + connections++ % 1024);
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::bind(client, reinterpret_cast<const sockaddr*>(&from), sizeof from) != 0) std::abort();
  if (::connect(client, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) std::abort();
  [[maybe_unused]] const auto sent = ::send(client, input.data(), input.size(), MSG_NOSIGNAL);
  ::shutdown(client, SHUT_WR);
  std::string reply;
  char buffer[4096];
  for (ssize_t n; (n = ::recv(client, buffer, sizeof buffer, 0)) > 0;)
    reply.append(buffer, static_cast<size_t>(n));
  ::close(client);
  if (!reply.empty() && !reply.starts_with("HTTP/1.1 ")) std::abort();
}

}  // namespace ingot::fuzz
