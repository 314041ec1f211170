// What a checkpoint costs: the copy that training waits for against memcpy of the same bytes, the write
// behind it against one plain file of the same size (what dd with conv=fdatasync does), loading against its
// parts. Interleaved rounds. usage: ingot_bench_checkpoint FOLDER [MiB] [rounds]      writes about twice that
// many MiB into FOLDER
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/parallel.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"

using namespace ingot;

namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

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
    std::fprintf(stderr, "usage: %s FOLDER [MiB] [rounds]\n", argv[0]);
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
  std::vector<double> copy, copy_plain, write, write_plain, load, verify;
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
      std::printf("first copy (fresh memory) %.2f GB/s\n",
                  static_cast<double>(report.bytes) * 1e-9 / report.copy_seconds);
      continue;
    }
    copy.push_back(report.copy_seconds);
    copy_plain.push_back(memcpy_seconds);
    write.push_back(report.write_seconds);
    write_plain.push_back(plain);
    verify.push_back(verify_seconds);
    load.push_back(load_seconds);
  }
  const double gb = static_cast<double>(mib << 20) * 1e-9;
  std::printf("%lld MiB, %d threads, median of %lld rounds\n", static_cast<long long>(mib), num_threads(),
              static_cast<long long>(rounds));
  std::printf("copy    %6.2f GB/s   memcpy, one thread   %6.2f GB/s   time ratio %.2f\n", gb / median(copy),
              gb / median(copy_plain), median(copy) / median(copy_plain));
  std::printf("write   %6.3f GB/s   plain file and sync  %6.3f GB/s   time ratio %.2f\n", gb / median(write),
              gb / median(write_plain), median(write) / median(write_plain));
  std::printf("verify  %6.2f GB/s   read %6.2f GB/s (page cache)\n", gb / median(verify), gb / median(load));
  fs.remove_all(folder + "/checkpoints");
}
