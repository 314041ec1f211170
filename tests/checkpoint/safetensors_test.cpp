// checkpoint/safetensors: the golden file, round trips, every rejection with its message, random damage.
#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/philox.h"
#include "support/support.h"

namespace ingot::safetensors_test {

using test::TempDir;

/// A file with this header text and `data_bytes` bytes of data.
std::string file_of(const std::string& json, size_t data_bytes) {
  const uint64_t length = json.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + json + std::string(data_bytes, 'x');
}

std::span<const std::byte> as_bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string error_of(const std::string& file) {
  try {
    parse_safetensors(as_bytes(file), "f");
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Safetensors, GoldenFileIsByteIdentical) {
  const std::string golden = std::string("\x38\0\0\0\0\0\0\0", 8) +
                             R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  )" +
                             std::string("\x00\x00\x80\x3f\x00\x00\x00\x40", 8);
  ASSERT_EQ(golden.size(), 72u);
  const TempDir folder;
  const float values[] = {1.0f, 2.0f};
  const SafetensorsItem item{"a", DType::f32, Shape{2}, values};
  write_safetensors(real_file_system(), folder / "a.safetensors", {&item, 1});
  EXPECT_EQ(real_file_system().read(folder / "a.safetensors"), golden);
  EXPECT_FALSE(real_file_system().exists(folder / "a.safetensors.tmp"));
}

TEST(Safetensors, RoundTripOfEveryDTypeIncludingEmptyAndRankZero) {
  const TempDir folder;
  std::vector<SafetensorsItem> items;
  std::string data(1024, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 37);
  for (const DType t : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8, DType::u16}) {
    items.push_back({std::string(name_of(t)) + ".odd", t, Shape{3, 5}, data.data()});
    items.push_back({std::string(name_of(t)) + ".scalar", t, Shape{}, data.data() + 8});
    items.push_back({std::string(name_of(t)) + ".empty", t, Shape{4, 0, 2}, nullptr});
  }
  items.push_back({"quote\" slash\\ newline\n \xC3\xA9", DType::u8, Shape{1, 1, 1, 1, 7}, data.data()});
  write_safetensors(real_file_system(), folder / "x", items, {{"format", "pt"}, {"note", "a\tb"}});
  const SafetensorsFile file(real_file_system(), folder / "x");
  EXPECT_EQ(file.entries().size(), items.size());
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}, {"note", "a\tb"}}));
  EXPECT_EQ(file.header_bytes().size() % 8, 0u);
  EXPECT_EQ(file.find("nobody"), nullptr);
  for (const SafetensorsItem& item : items) {
    const SafetensorsEntry* entry = file.find(item.name);
    ASSERT_NE(entry, nullptr) << item.name;
    EXPECT_EQ(dtype_of_safetensors(entry->dtype), item.dtype);
    EXPECT_EQ(entry->begin % static_cast<uint64_t>(size_of(item.dtype)), 0u) << item.name;
    ASSERT_EQ(file.data(*entry).size(), static_cast<size_t>(item.shape.numel() * size_of(item.dtype)));
    if (item.data) {
      EXPECT_EQ(std::memcmp(file.data(*entry).data(), item.data, file.data(*entry).size()), 0);
    }
  }
}

TEST(Safetensors, ForeignDTypesAreReadAsBytes) {
  const std::string file = file_of(R"({"h":{"dtype":"F16","shape":[3],"data_offsets":[0,6]},)"
                                   R"("q":{"dtype":"F4","shape":[4],"data_offsets":[6,8]}})",
                                   8);
  const SafetensorsHeader header = parse_safetensors(as_bytes(file), "f");
  EXPECT_EQ(header.entries[0].str(), "F16[3]");
  EXPECT_FALSE(dtype_of_safetensors("F16"));
}

TEST(Safetensors, EveryRejectionNamesFileTensorExpectedAndFound) {
  const struct {
    std::string file, message;
  } cases[] = {
      {"", "'f' has 0 bytes"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8), "at most 100000000"},
      {std::string("\x09\0\0\0\0\0\0\0{}", 10), "claims 9 bytes, but only 2 follow"},
      {file_of("", 0), "does not start with"},
      {file_of(" {}", 0), "does not start with"},
      {file_of("[]", 0), "does not start with"},
      {file_of("{}x", 0), "not valid JSON"},
      {file_of("{", 0), "not valid JSON"},
      {file_of(std::string("{}\0", 3), 0), "zero byte"},
      {file_of("{\"\xff\":1}", 0), "not valid JSON in UTF-8"},
      {file_of("{}", 1), "bytes after the last tensor"},
      {file_of(R"({"a":1})", 0), "tensor 'a' has a number"},
      {file_of(R"({"a":{}})", 0), "tensor 'a' lacks"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4), "unknown field 'x'"},
      {file_of(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4),
       "'dtype' twice"},
      {file_of(R"({"a":{"dtype":"X","shape":[1],"data_offsets":[0,4]}})", 4), "unknown dtype 'X'"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4), "1 data_offsets, expected 2"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4), "more than 2"},
      {file_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), "negative number"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4), "fraction"},
      {file_of(R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4), "an array"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{}})", 4), "'a' appears twice"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4), "F32[2] needs 8 bytes"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4), "data_offsets are [4, 0]"},
      {file_of(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2), "whole number of bytes"},
      {file_of(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
       "overflows"},
      {file_of(R"({"a":{"dtype":"F64","shape":[9223372036854775807],"data_offsets":[0,0]}})", 0),
       "overflows"},
      {file_of(R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,0]}})", 0),
       "beyond 2^63"},
      {file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
               R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
               3),
       "tensor 'b' begins at byte 1 of the data, expected 2 (it overlaps"},
      {file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3), "a hole before it"},
      {file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 3), "truncated"},
      {file_of(R"({"__metadata__":{"a":1}})", 0), "__metadata__ 'a' is a number, expected a string"},
      {file_of(R"({"__metadata__":{"a":{}}})", 0), "expected a string"},
      {file_of(R"({"__metadata__":{"a":"","a":""}})", 0), "'a' twice"},
  };
  for (const auto& c : cases) {
    const std::string found = error_of(c.file);
    EXPECT_NE(found.find(c.message), std::string::npos) << "expected: " << c.message << "\nfound: " << found;
    EXPECT_EQ(found.rfind("'f'", 0), 0u) << found;
  }
  EXPECT_EQ(error_of(file_of("{}   ", 0)), "");
  EXPECT_EQ(error_of(file_of(R"({"a":{"dtype":"U8","shape":[0,4],"data_offsets":[0,0]}})", 0)), "");
}

TEST(Safetensors, WriterRefusesBadNames) {
  const TempDir folder;
  const uint8_t byte = 1;
  for (const std::string name : {"", "__metadata__", "bad \xff utf8"}) {
    const SafetensorsItem item{name, DType::u8, Shape{1}, &byte};
    EXPECT_THROW(write_safetensors(real_file_system(), folder / "x", {&item, 1}), Error);
  }
  const SafetensorsItem twice[] = {{"a", DType::u8, Shape{1}, &byte}, {"a", DType::u8, Shape{1}, &byte}};
  EXPECT_THROW(layout_safetensors(twice, {}), Error);
  EXPECT_FALSE(real_file_system().exists(folder / "x"));
}

std::string sample_file() {
  const TempDir folder;
  const std::string data(64, 'd');
  const SafetensorsItem items[] = {{"layers.0.weight", DType::f32, Shape{2, 3}, data.data()},
                                   {"ids", DType::i64, Shape{2}, data.data()},
                                   {"empty", DType::bf16, Shape{0}, nullptr},
                                   {"b", DType::u8, Shape{3}, data.data()}};
  write_safetensors(real_file_system(), folder / "x", items, {{"format", "pt"}});
  return real_file_system().read(folder / "x");
}

TEST(Safetensors, EveryTruncationIsRejected) {
  const std::string file = sample_file();
  EXPECT_EQ(error_of(file), "");
  for (size_t size = 0; size < file.size(); ++size) EXPECT_NE(error_of(file.substr(0, size)), "") << size;
}

TEST(Safetensors, EveryFlippedHeaderBitIsAnErrorOrStillTiles) {
  const std::string file = sample_file();
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  for (size_t bit = 0; bit < (8 + length) * 8; ++bit) {
    std::string damaged = file;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    error_of(damaged);  // must neither crash nor throw anything but Error
  }
}

TEST(Safetensors, RandomDamageNeverCrashes) {
  const std::string file = sample_file();
  const std::string alphabet("{}[]\",:0123456789-eE.\\u \xff\0", 27);
  const Random random(1, RandomPurpose::test);
  uint64_t draw = 0;
  int accepted = 0;
  for (int round = 0; round < 40000; ++round) {
    std::string damaged = file;
    const uint64_t edits = 1 + random.below(draw++, 4);
    for (uint64_t e = 0; e < edits; ++e) {
      const size_t at = random.below(draw++, damaged.size());
      const char symbol = alphabet[random.below(draw++, alphabet.size())];
      switch (random.below(draw++, 4)) {
        case 0:
          damaged[at] = symbol;
          break;
        case 1:
          damaged.insert(at, 1, symbol);
          break;
        case 2:
          damaged.erase(at, 1 + random.below(draw++, 8));
          break;
        default:
          damaged.insert(at, damaged.substr(random.below(draw++, damaged.size()), at % 32));
      }
    }
    accepted += error_of(damaged).empty();
  }
  EXPECT_LT(accepted, 40000);
}

}  // namespace ingot::safetensors_test
