// checkpoint/: round trips through any cut of any tensor, damage of any byte, asynchronous saves, retention,
// locks.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/log.h"
#include "base/parallel.h"
#include "checkpoint/layout.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "support/checkpoint_sample.h"
#include "support/fault_fs.h"
#include "support/support.h"

namespace ingot::checkpoint_test {

using test::FaultFs;
using test::FileOp;
using test::kFolder;
using test::message_of;
using test::Quiet;
using test::sample_byte;
using test::sample_state;
using test::SampleState;
using test::save_now;
using test::TempDir;

void expect_sample(const CheckpointReader& reader, int64_t step) {
  for (const auto& [name, tensor] : reader.tensors()) {
    std::vector<uint8_t> data(static_cast<size_t>(tensor.meta.bytes()));
    reader.read(name, Tensor(data.data(), tensor.meta.shape, tensor.meta.dtype));
    for (size_t i = 0; i < data.size(); ++i)
      ASSERT_EQ(data[i], sample_byte(static_cast<uint64_t>(step), name, static_cast<int64_t>(i)))
          << name << " byte " << i;
  }
}

TEST(Checkpoint, RoundTripOnARealDisk) {
  const TempDir folder;
  const SampleState state = sample_state(12);
  CheckpointWriter writer(real_file_system(), folder / "a/b/checkpoints",
                          {.retention = {}, .code_version = "v1"});
  writer.save(state.request);
  const SaveReport report = writer.wait().value();
  EXPECT_EQ(report.path, folder / "a/b/checkpoints/step-00000012");
  EXPECT_EQ(real_file_system().read(folder / "a/b/checkpoints/latest"), "step-00000012\n");
  const CheckpointReader reader = CheckpointReader::open(real_file_system(), folder / "a/b/checkpoints");
  EXPECT_EQ(reader.path(), report.path);
  EXPECT_EQ(reader.step(), 12);
  EXPECT_EQ(reader.manifest().code_version, "v1");
  EXPECT_EQ(reader.tensors().size(), 6u);
  EXPECT_EQ(reader.tensors().at("router.bias").kind, TensorKind::buffer);
  EXPECT_EQ(reader.blob("sampler"), "{\"position\":12000}");
  EXPECT_MESSAGE(reader.blob("rng"), "has no state 'rng'");
  expect_sample(reader, 12);
  expect_sample(CheckpointReader::open(real_file_system(), report.path), 12);
}

TEST(Checkpoint, EveryDTypeEveryRankAndTinyFiles) {
  for (const DType t : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8, DType::u16}) {
    FaultFs fs;
    SampleState state;
    state.add(1, "vector", TensorKind::weight, t, Shape{13}, {1, 12});
    state.add(1, "matrix", TensorKind::optimizer, t, Shape{9, 7}, {2, 3});
    state.add(1, "scalar", TensorKind::weight, t, Shape{}, {});
    state.add(1, "empty", TensorKind::weight, t, Shape{0}, {});
    const SaveReport report = save_now(fs, state.request, {.max_file_bytes = 40});
    EXPECT_GE(fs.list(report.path).size(), 4u);  // 40 bytes a file
    expect_sample(CheckpointReader::open(fs, kFolder), 1);
  }
}

// Reshaping: regions of any position and size are read from pieces of any position and size.
TEST(Checkpoint, AnyRegionFromAnyPieces) {
  const Random random(3, RandomPurpose::test);
  uint64_t draw = 0;
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random.below(draw++, static_cast<uint64_t>(n)));
  };
  for (int round = 0; round < 40; ++round) {
    Shape global;
    for (int d = 0; d < round % 6; ++d) global.push_back(1 + below(d < 2 ? 9 : 3));
    // Cut the tensor by guillotine into up to 12 pieces.
    std::vector<Region> regions{Region::whole(global)};
    for (int cut = 0; cut < 11 && global.rank() > 0; ++cut) {
      const size_t which = static_cast<size_t>(below(static_cast<int64_t>(regions.size())));
      const int dim = static_cast<int>(below(global.rank()));
      const Region whole = regions[which];
      if (whole.shape[dim] < 2) continue;
      const int64_t first = 1 + below(whole.shape[dim] - 1);
      Region low, high;
      for (int d = 0; d < global.rank(); ++d) {
        low.offset.push_back(whole.offset[d]);
        low.shape.push_back(d == dim ? first : whole.shape[d]);
        high.offset.push_back(whole.offset[d] + (d == dim ? first : 0));
        high.shape.push_back(whole.shape[d] - (d == dim ? first : 0));
      }
      regions[which] = low;
      regions.push_back(high);
    }
    std::vector<float> values(static_cast<size_t>(global.numel()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 0.25f;
    std::vector<std::vector<float>> parts;
    SaveRequest request;
    for (const Region& region : regions) {
      parts.emplace_back(static_cast<size_t>(region.shape.numel()));
      copy_common(parts.back().data(), region, DType::f32, reinterpret_cast<const std::byte*>(values.data()),
                  Region::whole(global), DType::f32);
    }
    for (size_t i = 0; i < regions.size(); ++i)
      request.pieces.push_back({"t", TensorKind::weight, DType::f32, global, regions[i], parts[i].data()});
    FaultFs fs;
    save_now(fs, request, {.max_file_bytes = 1 + below(200)});
    const CheckpointReader reader = CheckpointReader::open(fs, kFolder);
    for (int query = 0; query < 20; ++query) {
      Region region;
      for (int d = 0; d < global.rank(); ++d) {
        region.offset.push_back(below(global[d]));
        region.shape.push_back(below(global[d] - region.offset[d] + 1));
      }
      std::vector<double> found(static_cast<size_t>(region.shape.numel()), -1), expected = found;
      reader.read("t", region, DType::f64, found.data());
      for (size_t i = 0; i < expected.size(); ++i) {  // index arithmetic apart from the implementation's
        int64_t rest = static_cast<int64_t>(i), flat = 0, step = 1;
        for (int d = global.rank() - 1; d >= 0; --d) {
          flat += (region.offset[d] + rest % region.shape[d]) * step;
          rest /= region.shape[d];
          step *= global[d];
        }
        expected[i] = values[static_cast<size_t>(flat)];
      }
      ASSERT_EQ(found, expected) << "round " << round << ", " << region.str() << " of " << global.str();
    }
  }
}

TEST(Checkpoint, CoverageNamesTheFirstWrongElement) {
  const auto fault = [](const Shape& global, const std::vector<Region>& pieces) {
    return coverage_fault(global, pieces).value_or("");
  };
  EXPECT_EQ(fault({4, 4}, {{{0, 0}, {4, 2}}, {{0, 2}, {4, 2}}}), "");
  EXPECT_EQ(fault({4, 4}, {{{0, 0}, {4, 2}}, {{2, 2}, {2, 2}}}), "no piece holds element [0, 2] (a hole)");
  EXPECT_EQ(fault({4, 4}, {{{0, 0}, {4, 3}}, {{0, 2}, {4, 2}}}), "2 pieces hold element [0, 2] (an overlap)");
  // A hole and an overlap of the same volume.
  EXPECT_NE(fault({4}, {{{0}, {2}}, {{1}, {2}}}), "");
  EXPECT_EQ(fault({4}, {}), "no piece holds element [0] (a hole)");
  EXPECT_EQ(fault({}, {{{}, {}}}), "");
  EXPECT_EQ(fault({}, {{{}, {}}, {{}, {}}}), "2 pieces hold element [] (an overlap)");
  EXPECT_EQ(fault({0, 3}, {}), "");
}

TEST(Checkpoint, CoverageAgreesWithCounting) {
  const Random random(9, RandomPurpose::test);
  uint64_t draw = 0;
  int exact = 0;
  for (int round = 0; round < 20000; ++round) {
    const Shape global{2, 3};
    std::vector<Region> pieces;
    int count[6] = {};
    for (uint64_t p = 1 + random.below(draw++, 3); p > 0; --p) {
      const auto r = static_cast<int64_t>(random.below(draw++, 2)),
                 c = static_cast<int64_t>(random.below(draw++, 3));
      const auto h = static_cast<int64_t>(random.below(draw++, static_cast<uint64_t>(3 - r)));
      const auto w = static_cast<int64_t>(random.below(draw++, static_cast<uint64_t>(4 - c)));
      pieces.push_back({{r, c}, {h, w}});
      for (int64_t i = r; i < r + h; ++i)
        for (int64_t j = c; j < c + w; ++j) ++count[i * 3 + j];
    }
    const bool once = std::all_of(std::begin(count), std::end(count), [](int n) { return n == 1; });
    ASSERT_EQ(!coverage_fault(global, pieces), once);
    exact += once;
  }
  EXPECT_GT(exact, 50);
}

TEST(Checkpoint, SaveRefusesWhatCannotBeLoaded) {
  FaultFs fs;
  CheckpointWriter writer(fs, kFolder);
  const float data[8] = {};
  const auto piece = [&](const char* name, Shape global, Region region, DType t = DType::f32) {
    return Piece{name, TensorKind::weight, t, global, region, data};
  };
  EXPECT_MESSAGE(writer.save({.step = 1, .pieces = {piece("a", {4}, {{0}, {3}})}}),
                 "tensor 'a': no piece holds element [3]");
  EXPECT_MESSAGE(writer.save({.step = 1, .pieces = {piece("a", {4}, {{2}, {3}})}}),
                 "tensor 'a': a piece at offset [2]");
  EXPECT_MESSAGE(
      writer.save(
          {.step = 1, .pieces = {piece("a", {4}, {{0}, {4}}), piece("a", {4}, {{0}, {4}}, DType::i32)}}),
      "tensor 'a': its pieces disagree");
  EXPECT_MESSAGE(
      writer.save({.step = 1, .pieces = {piece("a", {4}, {{0}, {4}}), piece("a", {4}, {{0}, {4}})}}),
      "given twice");
  EXPECT_MESSAGE(
      writer.save({.step = 1, .pieces = {piece("a", {4}, {{0}, {3}}), piece("a", {4}, {{2}, {2}})}}),
      "overlap");
  // Neither after one of the same pieces in whole.
  writer.save({.step = 1, .pieces = {piece("a", {4}, {{0}, {4}})}});
  EXPECT_EQ(writer.wait()->step, 1);
  EXPECT_MESSAGE(writer.save({.step = 2, .pieces = {piece("a", {4}, {{0}, {3}})}}), "tensor 'a'");
  fs.remove_all(std::string(kFolder) + "/step-00000001");
  fs.remove_all(std::string(kFolder) + "/latest");
  EXPECT_MESSAGE(writer.save({.step = 1, .pieces = {piece("\xff", {4}, {{0}, {4}})}}), "not valid UTF-8");
  EXPECT_MESSAGE(writer.save({.step = 1, .pieces = {}, .blobs = {{"rng", "{"}}}),
                 "the state 'rng' is not valid JSON");
  EXPECT_MESSAGE(writer.save({.step = 1, .pieces = {}, .blobs = {{"rng", "{\"a\":1,\"a\":2}"}}}), "twice");
  EXPECT_MESSAGE(
      writer.save({.step = 1, .pieces = {}, .blobs = {{"rng", std::string(70, '[') + std::string(70, ']')}}}),
      "nested");
  fs.set_free_bytes(50'000);
  EXPECT_MESSAGE(writer.save({.step = 1, .pieces = {piece("a", {4}, {{0}, {4}})}}),
                 "the disk has 48.8 KiB left");
  EXPECT_EQ(fs.list(kFolder).size(), 0u);
}

TEST(Checkpoint, ConversionOnRequestOnly) {
  FaultFs fs;
  const double values[] = {1.0, -2.5, 1.0 + 0x1p-8 + 0x1p-40, 1e300, -0.0, 0x1p-149, NAN};
  const int32_t ids[] = {7};
  SaveRequest request;
  request.pieces = {Piece::whole("d", TensorKind::weight, Tensor::of(values, {7})),
                    Piece::whole("i", TensorKind::buffer, Tensor::of(ids, {1}))};
  save_now(fs, request);
  const CheckpointReader reader = CheckpointReader::open(fs, kFolder);
  float f[7];
  reader.read("d", Tensor::of(f, {7}));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(f[i], static_cast<float>(values[i]));
  EXPECT_TRUE(std::isnan(f[6]));
  bf16 b[7];
  reader.read("d", Tensor::of(b, {7}));
  // One rounding: the third value lies above the tie; through float it would have been the tie, and gone to
  // even.
  EXPECT_EQ(to_float(b[2]), 1.0f + 0x1p-7f);
  EXPECT_EQ(to_float(b[1]), -2.5f);
  EXPECT_TRUE(std::isinf(to_float(b[3])));
  EXPECT_TRUE(std::isnan(to_float(b[6])));
  EXPECT_MESSAGE(reader.read("i", Tensor::of(f, {1})), "tensor 'i' is i32[1], which does not convert to f32");
  EXPECT_MESSAGE(reader.read("d", Tensor::of(f, {6})), "tensor 'd' has shape [7], expected [6]");
  EXPECT_MESSAGE(reader.read("d", Region{{5}, {3}}, DType::f32, f), "is not inside tensor 'd'");
  EXPECT_MESSAGE(reader.read("x", Tensor::of(f, {6})), "has no tensor 'x'");
}

TEST(Checkpoint, AnyFlippedByteIsFoundAndNamed) {
  const Quiet quiet;
  FaultFs fs;
  const SaveReport report = save_now(fs, sample_state(5).request);
  for (const std::string& file : fs.list(report.path)) {
    const std::string path = report.path + "/" + file;
    for (uint64_t at = 0; at < fs.size(path); at += file == kManifestFile ? 29 : 7) {
      fs.flip_byte(path, at);
      const std::string message = message_of([&] { CheckpointReader::open(fs, report.path); });
      EXPECT_NE(message.find(file), std::string::npos) << file << " byte " << at << ": " << message;
      EXPECT_FALSE(CheckpointReader::open_newest(fs, kFolder).has_value());
      fs.flip_byte(path, at);
    }
  }
  const std::string weights = report.path + "/weights-00001.safetensors";
  fs.flip_byte(weights, fs.size(weights) - 1);
  EXPECT_MESSAGE(CheckpointReader::open(fs, report.path), "tensor 'layers.0.norm' is damaged");
  EXPECT_EQ(message_of([&] { CheckpointReader::open(fs, report.path, Verify::structure); }), "");
}

TEST(Checkpoint, TruncatedAndMissingFilesAreNamed) {
  FaultFs fs;
  const SaveReport report = save_now(fs, sample_state(5).request);
  for (const std::string& file : fs.list(report.path)) {
    const std::string path = report.path + "/" + file;
    const std::string content = fs.read(path);
    for (size_t size = 0; size < content.size(); size += 1 + content.size() / 40) {
      fs.truncate(path, size);
      EXPECT_MESSAGE(CheckpointReader::open(fs, report.path, Verify::structure), file);
    }
    fs.remove_all(path);
    EXPECT_MESSAGE(CheckpointReader::open(fs, report.path, Verify::structure), file);
    fs.create(path)->append(content.data(), content.size());
  }
  EXPECT_MESSAGE(CheckpointReader::open(fs, "/nowhere"), "there is no checkpoint '/nowhere'");
  EXPECT_MESSAGE(CheckpointReader::open(fs, "/run"), "there is no complete checkpoint in '/run'");
  EXPECT_FALSE(CheckpointReader::open_newest(fs, "/nowhere").has_value());
}

TEST(Checkpoint, NewestIsTheLastSavedAlsoAfterARewind) {
  const Quiet quiet;
  FaultFs fs;
  for (const int64_t step : {100, 200, 150, 200}) save_now(fs, sample_state(step).request);
  EXPECT_EQ(CheckpointReader::open(fs, kFolder).path(), kFolder + "/step-00000200-2");
  fs.flip_byte(kFolder + "/step-00000200-2/optimizer-00001.safetensors", 500);
  EXPECT_EQ(CheckpointReader::open(fs, kFolder).step(), 150);
  fs.truncate(kFolder + "/step-00000150/manifest.json", 100);
  EXPECT_EQ(CheckpointReader::open(fs, kFolder).path(), kFolder + "/step-00000200");
}

TEST(Checkpoint, ASaveOutranksOneThatCannotBeReadNowButLater) {
  const Quiet quiet;
  FaultFs fs;
  save_now(fs, sample_state(2).request);
  fs.fail_call(FileOp::read, 0, "Input/output error");
  CheckpointWriter(fs, kFolder).save(sample_state(1).request);
  EXPECT_EQ(CheckpointReader::open(fs, kFolder).step(), 1);
}

/// Replaces text in a manifest and repairs its checksum.
void edit_manifest(FaultFs& fs, const std::string& folder, const std::string& from, const std::string& to) {
  const std::string path = folder + "/" + kManifestFile;
  std::string text = fs.read(path);
  ASSERT_NE(text.find(from), std::string::npos) << from;
  text.replace(text.find(from), from.size(), to);
  const size_t body = text.find(",\n") + 1;
  text.replace(body - 34, 32, hash128_hex(text.data() + body, text.size() - body));
  fs.create(path)->append(text.data(), text.size());
}

TEST(Checkpoint, ManifestRejectionsNameTheField) {
  const struct {
    const char *from, *to, *message;
  } cases[] = {
      {"\"version\": 1", "\"version\": 2", "has format version 2, this program reads up to 1"},
      {"\"version\": 1", "\"version\": 0", "format version 0"},
      {"\"version\": 1", "\"version\": -1", "'version' is number, expected a whole number"},
      {"ingot-checkpoint", "other", "'format' is not"},
      {"\"step\": 5", "\"step\": 9223372036854775808", "at most 2^62"},
      {"\"step\": 5", "\"stop\": 5", "lacks 'step'"},
      {"\"step\": 5", "\"step\": 5, \"x\": 1", "unknown field 'x'"},
      {"\"step\": 5", "\"step\": 5, \"step\": 5", "the key \"step\" twice"},
      {"\"kind\":\"optimizer\"", "\"kind\":\"gradient\"", "'gradient' is unknown to this program"},
      {"\"dtype\":\"i64\"", "\"dtype\":\"i65\"", "tensor 'router.bias': dtype: 'i65' is unknown"},
      {"\"shape\":[37,8]", "\"shape\":[37,9]", "tensor 'embed.weight': no piece holds element [0, 8]"},
      {"\"shape\":[37,8]", "\"shape\":[37,7]", "is not inside"},
      {"\"shape\":[37,8]", "\"shape\":[1,1,1,1,1,1]", "6 dimensions"},
      {"\"shape\":[37,8]", "\"shape\":[4611686018427387904,8]", "size overflows"},
      {"\"offset\":[0,0]", "\"offset\":[0]", "is not inside"},
      {"\"file\":\"weights-00001.safetensors\"", "\"file\":\"../x\"", "not in the list of files"},
      {"\"weights-00001.safetensors\": ", "\"../x\": ", "is not a plain file name"},
      {"\"blobs\": {",
       "\"blobs\": {\"a\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
       "nested deeper"},
      {"\"blobs\": {", "\"blobs\": [", "not valid JSON"},
      {"\"key\":\"temperature\"", "\"key\":\"temperatura\"",
       "does not hold 'temperatura' of tensor 'temperature'"},
      {"\"dtype\":\"f64\"", "\"dtype\":\"i64\"", "'temperature' is F64[], the manifest expects i64[]"},
  };
  for (const auto& c : cases) {
    FaultFs fs;
    const SaveReport report = save_now(fs, sample_state(5).request);
    edit_manifest(fs, report.path, c.from, c.to);
    EXPECT_MESSAGE(CheckpointReader::open(fs, report.path), c.message);
  }
  FaultFs fs;  // A newer checkpoint is never passed over for an older one.
  save_now(fs, sample_state(5).request);
  edit_manifest(fs, save_now(fs, sample_state(6).request).path, "\"version\": 1", "\"version\": 2");
  EXPECT_THROW(CheckpointReader::open_newest(fs, kFolder), NewerFormat);
}

TEST(Checkpoint, ManifestSurvivesRandomDamage) {
  FaultFs fs;
  const std::string text = fs.read(save_now(fs, sample_state(5).request).path + "/" + kManifestFile);
  const std::string alphabet("{}[]\",:0123456789-eE.\\u \xff\0", 27);
  const Random random(2, RandomPurpose::test);
  uint64_t draw = 0;
  int accepted = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string damaged = text;
    for (uint64_t edits = 1 + random.below(draw++, 3); edits > 0; --edits) {
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
          damaged.insert(at, damaged.substr(random.below(draw++, damaged.size()), at % 64));
      }
    }
    accepted += message_of([&] { parse_manifest(damaged, "m", true); }).empty();
    if (damaged != text) {
      EXPECT_NE(message_of([&] { parse_manifest(damaged, "m"); }), "");
    }
  }
  EXPECT_LT(accepted, 6000);
}

TEST(Checkpoint, SaveReturnsAfterTheCopyAndTheNextWaits) {
  FaultFs fs;
  CheckpointWriter writer(fs, kFolder);
  SampleState state = sample_state(1);
  writer.save(state.request);
  for (auto& memory : state.memory) std::fill(memory.begin(), memory.end(), 0xAA);  // the caller trains on
  const SampleState next = sample_state(2);
  writer.save(next.request);
  EXPECT_TRUE(fs.exists(kFolder + "/step-00000001/manifest.json"));  // the second save waited for the first
  const SaveReport report = writer.wait().value();
  EXPECT_FALSE(writer.busy());
  EXPECT_EQ(report.step, 2);
  EXPECT_EQ(writer.bytes_written(), report.bytes);
  EXPECT_GT(report.write_seconds, 0);
  expect_sample(CheckpointReader::open(fs, kFolder + "/step-00000001"), 1);
  expect_sample(CheckpointReader::open(fs, kFolder + "/step-00000002"), 2);
}

TEST(Checkpoint, DeletingOlderOnesIsNotPartOfTheWrite) {
  constexpr double kRemoval = 2;  // seconds: much longer than the write
  FaultFs fs;
  CheckpointWriter writer(fs, kFolder, {.retention = {.keep_last = 1}});
  const SampleState first = sample_state(1), second = sample_state(2);
  writer.save(first.request);
  writer.wait();
  fs.set_removal_seconds(kRemoval);
  writer.save(second.request);
  EXPECT_LT(writer.wait().value().write_seconds, kRemoval);
  EXPECT_FALSE(fs.exists(kFolder + "/step-00000001"));
}

TEST(Checkpoint, SynchronousSaveNeedsNoCopy) {
  FaultFs fs;
  CheckpointWriter writer(fs, kFolder, {.asynchronous = false});
  const SampleState state = sample_state(3);
  writer.save(state.request);
  EXPECT_TRUE(fs.exists(kFolder + "/latest"));
  EXPECT_EQ(writer.wait()->copy_seconds, 0);
  expect_sample(CheckpointReader::open(fs, kFolder), 3);
}

TEST(Checkpoint, FailureSurfacesOnceAtTheNextCallAndHarmsNothing) {
  const Quiet quiet;
  FaultFs fs;
  CheckpointWriter writer(fs, kFolder);
  const SampleState one = sample_state(1), two = sample_state(2), three = sample_state(3);
  writer.save(one.request);
  writer.wait();
  fs.fail_call(FileOp::append, 3, "No space left on device", true);
  writer.save(two.request);
  EXPECT_MESSAGE(writer.save(three.request), "No space left on device");
  EXPECT_FALSE(fs.exists(kFolder + "/step-00000002.tmp"));  // the space is given back
  EXPECT_EQ(CheckpointReader::open(fs, kFolder).step(), 1);
  fs.heal();
  writer.save(three.request);
  EXPECT_EQ(writer.wait()->step, 3);
  expect_sample(CheckpointReader::open(fs, kFolder), 3);
}

TEST(Checkpoint, LeftoversAreSkippedAndCleared) {
  const Quiet quiet;
  FaultFs fs;
  save_now(fs, sample_state(1).request);
  for (const std::string name : {"step-00000009.tmp", "step-00000008-3.trash"}) {
    fs.create_folders(kFolder + "/" + name);
    fs.create(kFolder + "/" + name + "/manifest.json")->append("{}", 2);
  }
  fs.create_folders(kFolder + "/mine.tmp");
  EXPECT_EQ(CheckpointReader::open(fs, kFolder).step(), 1);
  const CheckpointWriter writer(fs, kFolder);
  EXPECT_EQ(fs.list(kFolder), (std::vector<std::string>{"latest", "mine.tmp", "step-00000001"}));
}

}  // namespace ingot::checkpoint_test
