// See metrics_server.h.
#include "serve/metrics_server.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "report/prometheus.h"

namespace ingot::serve {
namespace {

HttpMessage plain_text(int status, const std::string& text) {
  return {status, "text/plain; charset=utf-8", text + "\n", {}};
}

/// A scrape is a line; whoever keeps more open is in the way of nobody.
HttpLimits scrape_limits() {
  HttpLimits limits;
  limits.body_bytes = 4 << 10;
  limits.bodies_bytes = 64 << 10;
  limits.connections = 32;
  return limits;
}

HttpServer listening(const std::string& address) {
  const auto at = listen_address(address);
  if (!at)
    throw Error(fmt::format("metrics cannot be served at '{}'", address),
                "expected HOST:PORT or PORT, e.g. 127.0.0.1:9100 or 9100; port 0: any free one");
  try {
    return HttpServer(at->host, at->port, scrape_limits(), plain_text);
  } catch (const Error& e) {
    throw Error(fmt::format("metrics cannot be served at '{}': {}", address, e.what()),
                "give --metrics another port (0: any free one), or an address of this machine");
  }
}

}  // namespace

std::optional<ListenAddress> listen_address(std::string_view text) {
  ListenAddress found{"127.0.0.1", 0};
  const size_t colon = text.rfind(':');
  std::string_view port = text;
  if (colon != text.npos) {
    std::string_view host = text.substr(0, colon);
    port = text.substr(colon + 1);
    const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (bracketed) host = host.substr(1, host.size() - 2);
    if (host.empty() || (!bracketed && host.find(':') != host.npos)) return std::nullopt;
    if (std::any_of(host.begin(), host.end(),
                    [](unsigned char c) { return c <= ' ' || c == '/' || c == '[' || c == ']'; }))
      return std::nullopt;
    found.host = host;
  }
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), found.port);
  if (error != std::errc() || end != port.data() + port.size()) return std::nullopt;
  return found;
}

MetricsServer::MetricsServer(const std::string& address, std::function<std::string()> page)
    : server_(listening(address)) {
  server_.start(
      [page = std::move(page)](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
        if (request.path != "/metrics") return reply->send(plain_text(404, "there is only /metrics here"));
        if (request.method != "GET" && request.method != "HEAD")
          return reply->send({405, "text/plain", "metrics are read by GET\n", {{"Allow", "GET, HEAD"}}});
        reply->send({200, kPrometheusType, page(), {}});
      },
      1);
}

std::string MetricsServer::url() const {
  std::string host = server_.address();
  if (host.find(':') != host.npos) host = "[" + host + "]";
  return fmt::format("http://{}:{}/metrics", host, server_.port());
}

}  // namespace ingot::serve
