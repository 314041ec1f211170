// Serves one page of metrics (report/prometheus.h) over HTTP, on a thread of its own: what a run or a guard
// shows of itself while it works.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "serve/http.h"

namespace ingot::serve {

struct ListenAddress {
  std::string host;
  uint16_t port = 0;
};
/// "HOST:PORT", "[IPv6]:PORT", or "PORT", which is of 127.0.0.1; nothing where the text is none.
std::optional<ListenAddress> listen_address(std::string_view text);

class MetricsServer {
 public:
  /// Listens and answers GET /metrics with what `page` returns, which a thread of the server calls; other
  /// paths get 404. Throws Error where `address` is none (listen_address()), is not of this machine, or its
  /// port is taken. `page` must be quick, and may be called until the destructor returns.
  MetricsServer(const std::string& address, std::function<std::string()> page);
  /// "http://127.0.0.1:9100/metrics".
  std::string url() const;
  uint16_t port() const { return server_.port(); }

 private:
  HttpServer server_;
};

}  // namespace ingot::serve
