// See tensorboard.h.
#include "report/tensorboard.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/host_name.h"

namespace ingot {
namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ (0x82F63B78u & (0u - (c & 1u)));
    table[i] = c;
  }
  return table;
}

template <class T>
void put_raw(std::string& out, T value) {  // the hosts we build for are little-endian, like the format
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

// Protobuf fields. A key is (field number << 3) | wire type: 0 varint, 1 eight bytes, 2 length and bytes, 5
// four bytes.
void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}
void put_integer(std::string& out, int field, uint64_t value) {
  put_varint(out, static_cast<uint64_t>(field) << 3);
  put_varint(out, value);
}
void put_bytes(std::string& out, int field, const std::string& bytes) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | 2);
  put_varint(out, bytes.size());
  out += bytes;
}
void put_float(std::string& out, int field, float value) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | 5);
  put_raw(out, value);
}

constexpr int kEventWall = 1, kEventStep = 2, kEventVersion = 3, kEventSummary = 5, kEventSession = 7;
constexpr int kSummaryValue = 1, kValueTag = 1, kValueSimple = 2, kValueTensor = 8, kValueMetadata = 9;

std::string event_start(double wall, int64_t step) {
  std::string event;
  put_varint(event, kEventWall << 3 | 1);
  put_raw(event, wall);
  if (step != 0) put_integer(event, kEventStep, static_cast<uint64_t>(step));
  return event;
}

std::string scalar_value(const std::string& tag, float value) {
  std::string message;
  put_bytes(message, kValueTag, tag);
  put_float(message, kValueSimple, value);
  return message;
}

std::string record(const std::string& data) {
  std::string out;
  put_raw(out, static_cast<uint64_t>(data.size()));
  put_raw(out, masked_crc32c(out.data(), out.size()));
  out += data;
  put_raw(out, masked_crc32c(data.data(), data.size()));
  return out;
}

}  // namespace

uint32_t crc32c(const void* data, size_t size, uint32_t crc) {
  static constexpr auto table = make_crc_table();
  crc = ~crc;
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < size; ++i) crc = table[(crc ^ bytes[i]) & 0xff] ^ (crc >> 8);
  return ~crc;
}

uint32_t masked_crc32c(const void* data, size_t size) {
  const uint32_t crc = crc32c(data, size);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string version_record(double wall) {
  std::string event = event_start(wall, 0);
  put_bytes(event, kEventVersion, "brain.Event:2");
  return record(event);
}

std::string scalar_record(double wall, int64_t step, const std::string& tag, float value) {
  std::string event = event_start(wall, step), summary;
  put_bytes(summary, kSummaryValue, scalar_value(tag, value));
  put_bytes(event, kEventSummary, summary);
  return record(event);
}

std::string text_record(double wall, int64_t step, const std::string& name, const std::string& text) {
  std::string plugin, metadata, dimension, shape, tensor, value, summary;
  put_bytes(plugin, 1, "text");
  put_bytes(metadata, 1, plugin);
  put_integer(dimension, 1, 1);
  put_bytes(shape, 2, dimension);
  put_integer(tensor, 1, 7);  // DT_STRING
  put_bytes(tensor, 2, shape);
  put_bytes(tensor, 8, text);
  put_bytes(value, kValueTag, name + "/text_summary");
  put_bytes(value, kValueMetadata, metadata);
  put_bytes(value, kValueTensor, tensor);
  put_bytes(summary, kSummaryValue, value);
  std::string event = event_start(wall, step);
  put_bytes(event, kEventSummary, summary);
  return record(event);
}

std::string session_start_record(double wall, int64_t step) {
  std::string session, event = event_start(wall, step);
  put_integer(session, 1, 1);  // SessionLog.START
  put_bytes(event, kEventSession, session);
  return record(event);
}

EventWriter::EventWriter(FileSystem& fs, const std::string& folder, int64_t resume_step, double wall) {
  fs.create_folders(folder);
  const std::string stem = fmt::format("{}/events.out.tfevents.{:010d}.{}.{}.", folder,
                                       static_cast<int64_t>(wall), host_name(), ::getpid());
  int n = 0;
  while (fs.exists(stem + std::to_string(n))) ++n;
  path_ = stem + std::to_string(n);
  file_ = fs.create(path_);
  append(version_record(wall));
  if (resume_step > 0) append(session_start_record(wall, resume_step + 1));
}

void EventWriter::append(const std::string& bytes) {
  file_->append(bytes.data(), bytes.size());
}

void EventWriter::write(const MetricRow& row) {
  std::string summary;
  for (const auto& [name, value] : row.scalars)
    put_bytes(summary, kSummaryValue, scalar_value(name, static_cast<float>(value)));
  std::string event = event_start(row.wall, row.step);
  put_bytes(event, kEventSummary, summary);
  append(record(event));
}

void EventWriter::write_text(int64_t step, double wall, const std::string& name, const std::string& text) {
  append(text_record(wall, step, name, text));
}

}  // namespace ingot
