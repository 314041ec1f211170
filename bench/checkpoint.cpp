// What a checkpoint costs: the copy that training waits for against memcpy of the same bytes, the background
// write against one plain file of the same size (what dd with conv=fdatasync does), and loading. Medians of
// interleaved rounds.
// usage: ingot_bench_checkpoint FOLDER [MiB] [rounds]      writes about twice that many MiB into FOLDER
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/parallel.h"
#include "base/spread.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "report/table.h"

using namespace ingot;

namespace {

struct Round {
  double copy, copy_plain, write, write_plain, load, verify;  // seconds
};

double plain_write_seconds(FileSystem& fs, const std::string& path, const std::vector<float>& data) {
  const double start = monotonic_seconds();
  const auto file = fs.create(path);
  const size_t bytes = data.size() * 4, block = 4 << 20;
  for (size_t at = 0; at < bytes; at += block)
    file->append(reinterpret_cast<const char*>(data.data()) + at, std::min(block, bytes - at));
  file->sync();
  file->close();
  const double seconds = monotonic_seconds() - start;
  fs.remove_all(path);
  return seconds;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: " << argv[0] << " FOLDER [MiB] [rounds]\n";
    return 2;
  }
  const std::string folder = argv[1];
  const int64_t mib = argc > 2 ? std::atoll(argv[2]) : 512, rounds = argc > 3 ? std::atoll(argv[3]) : 5;
  FileSystem& fs = real_file_system();
  std::vector<float> data(static_cast<size_t>(mib << 18)), other(data.size());
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i * 2654435761u >> 7);
  SaveRequest request;
  for (int64_t i = 0; i < 64; ++i)
    request.pieces.push_back(Piece::whole("tensor." + std::to_string(i), TensorKind::weight,
                                          Tensor::of(data.data() + i * (mib << 12), {mib, 4096})));
  CheckpointWriter writer(fs, folder + "/checkpoints", {.retention = {.keep_last = 1}});
  std::vector<Round> all;
  for (int64_t round = 0; round <= rounds; ++round) {
    request.step = round;
    writer.save(request);
    const SaveReport report = writer.wait().value();
    double start = monotonic_seconds();
    std::memcpy(other.data(), data.data(), data.size() * 4);
    const double memcpy_seconds = monotonic_seconds() - start;
    const double plain = plain_write_seconds(fs, folder + "/plain", data);
    start = monotonic_seconds();
    const CheckpointReader reader = CheckpointReader::open(fs, folder + "/checkpoints");
    const double verify_seconds = monotonic_seconds() - start;
    start = monotonic_seconds();
    for (int64_t i = 0; i < 64; ++i)
      reader.read("tensor." + std::to_string(i), Tensor::of(other.data() + i * (mib << 12), {mib, 4096}));
    const double load_seconds = monotonic_seconds() - start;
    if (round == 0) {
      std::cout << fmt::format("first copy (fresh memory) {:.2f} GB/s\n",
                               static_cast<double>(report.bytes) * 1e-9 / report.copy_seconds);
      continue;
    }
    all.push_back(
        {report.copy_seconds, memcpy_seconds, report.write_seconds, plain, load_seconds, verify_seconds});
  }
  Table table({words(""), number("GB/s", 3), words("against"), number("GB/s", 3), number("time ratio", 2)});
  const auto rate = [&](double Round::*seconds) {
    return static_cast<double>(mib << 20) * 1e-9 / spread_over(all, seconds).median;
  };
  const auto add = [&](const char* name, double Round::*ours, const char* against, double Round::*plain) {
    table.add({name, rate(ours), against, rate(plain), rate(plain) / rate(ours)});
  };
  add("copy", &Round::copy, "memcpy, one thread", &Round::copy_plain);
  add("write", &Round::write, "plain file and sync", &Round::write_plain);
  table.add({"verify", rate(&Round::verify), "page cache", {}, {}});
  table.add({"read", rate(&Round::load), "page cache", {}, {}});
  std::cout << fmt::format("{} MiB, {} threads, medians of {} rounds\n", mib, num_threads(), rounds)
            << text_of({table});
  fs.remove_all(folder + "/checkpoints");
}
