// A message that must hold certain parts.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ingot::test {

/// Every part is in the message, in any order.
inline void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "wanted: " << part << "\nfound: " << message;
}

}  // namespace ingot::test
