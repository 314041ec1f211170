// TensorBoard event files: `tensorboard --logdir RUN/events` shows the run. Records are
//   u64 length | u32 masked CRC-32C of the length | data | u32 masked CRC-32C of the data (little-endian)
// with data an Event message in protobuf encoding (tensorboard/compat/proto/event.proto, summary.proto).
// A resume opens a new file that starts with a session record; TensorBoard then drops the older steps from
// there on.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/file_system.h"
#include "report/metrics.h"

namespace ingot {

/// CRC-32C (Castagnoli, reflected 0x82F63B78); `crc` continues an earlier call.
uint32_t crc32c(const void* data, size_t size, uint32_t crc = 0);
/// ((c >> 15) | (c << 17)) + 0xa282ead8: TensorFlow stores checksums of checksums this way.
uint32_t masked_crc32c(const void* data, size_t size);

/// Complete records. Exposed for tests, which compare their bytes with known ones.
std::string version_record(double wall);
std::string scalar_record(double wall, int64_t step, const std::string& tag, float value);
std::string text_record(double wall, int64_t step, const std::string& name, const std::string& text);
std::string session_start_record(double wall, int64_t step);

class EventWriter {
 public:
  /// Creates events.out.tfevents.<time>.<host>.<pid>.<n> in `folder`, and the folder. resume_step > 0 makes
  /// TensorBoard ignore later steps of earlier files.
  EventWriter(FileSystem& fs, const std::string& folder, int64_t resume_step, double wall);
  /// All scalars of the row in one event. Lists are left to metrics.jsonl and the report.
  void write(const MetricRow& row);
  /// A sample for the TEXT tab (Markdown).
  void write_text(int64_t step, double wall, const std::string& name, const std::string& text);
  const std::string& path() const { return path_; }

 private:
  void append(const std::string& record);
  std::string path_;
  std::unique_ptr<WritableFile> file_;
};

}  // namespace ingot
