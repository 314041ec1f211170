// See canary.h.
#include "post/rl/canary.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace ingot {
namespace {

/// A raw deflate stream of which only sizes are wanted.
class DeflateCounter {
 public:
  DeflateCounter() {
    // 8 is zlib's default memory level. A window of 2^9 or 2^10 bytes is what -10 asks for.
    INGOT_CHECK(deflateInit2(&stream_, 1, Z_DEFLATED, -10, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  }
  ~DeflateCounter() { deflateEnd(&stream_); }
  DeflateCounter(const DeflateCounter&) = delete;
  DeflateCounter& operator=(const DeflateCounter&) = delete;
  /// Bytes that a piece and the synchronization behind it take.
  int64_t add(std::span<const uint8_t> bytes) {
    const uint64_t before = stream_.total_out;
    stream_.next_in = const_cast<uint8_t*>(bytes.data());
    stream_.avail_in = static_cast<uInt>(bytes.size());
    do {
      stream_.next_out = out_.data();
      stream_.avail_out = static_cast<uInt>(out_.size());
      const int result = deflate(&stream_, Z_SYNC_FLUSH);
      INGOT_CHECK(result == Z_OK || result == Z_BUF_ERROR, "deflate: {}", result);
    } while (stream_.avail_out == 0);
    return static_cast<int64_t>(stream_.total_out - before);
  }

 private:
  z_stream stream_ = {};
  std::array<uint8_t, 16384> out_ = {};
};

/// An empty stored block, which is what a synchronization writes at least.
constexpr int64_t kSyncBytes = 5;

}  // namespace

double least_compression_ratio(std::span<const int32_t> ids, int64_t chunk) {
  const auto count = static_cast<int64_t>(ids.size());
  INGOT_CHECK(chunk > 0, "chunk {}", chunk);
  DeflateCounter deflate;
  double least = 1;
  std::vector<uint8_t> bytes;
  for (int64_t begin = 0; begin < count;) {
    const int64_t end = count - begin < 2 * chunk ? count : begin + chunk;
    bytes.clear();
    for (int64_t t = begin; t < end; ++t)
      for (int shift = 0; shift < 32; shift += 8)
        bytes.push_back(static_cast<uint8_t>(static_cast<uint32_t>(ids[static_cast<size_t>(t)]) >> shift));
    const int64_t compressed = std::max<int64_t>(0, deflate.add(bytes) - kSyncBytes);
    least = std::min(least, static_cast<double>(compressed) / static_cast<double>(bytes.size()));
    begin = end;
  }
  return least;
}

double rare_token_share(std::span<const int32_t> ids, int64_t vocab, double share) {
  if (ids.empty()) return 0;
  const double first = static_cast<double>(vocab) * (1 - share);
  const auto rare = std::count_if(ids.begin(), ids.end(), [&](int32_t id) { return id >= first; });
  return static_cast<double>(rare) / static_cast<double>(ids.size());
}

double gibberish_share(std::span<const int32_t> ids, std::span<const float> logprob, int64_t vocab) {
  INGOT_CHECK(ids.size() == logprob.size());
  if (ids.empty()) return 0;
  const double first = static_cast<double>(vocab) * 0.9, unlikely = -std::log(static_cast<double>(vocab)) - 2;
  int64_t found = 0;
  for (size_t t = 0; t < ids.size(); ++t) found += ids[t] >= first && logprob[t] <= unlikely;
  return static_cast<double>(found) / static_cast<double>(ids.size());
}

}  // namespace ingot
