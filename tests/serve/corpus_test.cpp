// The corpora of the server's fuzzers: each input is read or refused.
#include <gtest/gtest.h>

#include <filesystem>

#include "fuzz/server_requests.h"
#include "support/support.h"

namespace ingot::test::corpus_test {

template <class Body>
int replay(const std::string& name, Body body) {
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(INGOT_SOURCE_DIR "/tests/fuzz/corpus/" + name)) {
    SCOPED_TRACE(entry.path().string());
    body(read_text(entry.path()));
    ++count;
  }
  return count;
}

TEST(Corpus, JsonRequests) {
  EXPECT_GE(replay("json_request", fuzz::json_request), 10);
}

TEST(Corpus, HttpRequests) {
  EXPECT_GE(replay("http_request", fuzz::http_request), 10);
}

}  // namespace ingot::test::corpus_test
