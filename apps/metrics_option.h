// --metrics of the commands that show themselves to Prometheus.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "serve/metrics_server.h"

namespace ingot {

/// Refuses what is no address.
inline void add_metrics_option(CLI::App& command, std::string& address) {
  command
      .add_option("--metrics", address,
                  "serve numbers to Prometheus at this HOST:PORT, or PORT of 127.0.0.1; port 0: any free one")
      ->check([](const std::string& text) {
        return serve::listen_address(text) ? std::string()
                                           : "expected HOST:PORT or PORT, e.g. 9100, found '" + text + "'";
      });
}

}  // namespace ingot
