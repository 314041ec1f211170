// See imported.h.
#include "support/imported.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/safetensors.h"

namespace ingot::test {

ShellResult shell(const TempDir& dir, const std::string& command) {
  const std::string out = dir / "stdout", err = dir / "stderr";
  const ProcessResult r =
      run_process({"/bin/bash", "-c", "(" + command + "\n) >'" + out + "' 2>'" + err + "'"},
                  {"INGOT=" INGOT_BINARY, "DIR=" + dir.path()});
  return {r.exit_code, read_text(out), read_text(err)};
}

std::string generation_fixture(const TempDir& dir, const std::string& name) {
  std::filesystem::copy(fixture("generation/" + name), dir / name, std::filesystem::copy_options::recursive);
  return dir / name;
}

void fill_tensor(const std::string& folder, const std::string& tensor, float value) {
  const std::string path = folder + "/model.safetensors";
  std::vector<SafetensorsItem> items;
  std::vector<std::vector<std::byte>> bytes;
  {
    const SafetensorsFile file(real_file_system(), path);
    bytes.reserve(file.entries().size());
    for (const SafetensorsEntry& e : file.entries()) {
      const auto data = file.data(e);
      bytes.emplace_back(data.begin(), data.end());
      Shape shape;
      for (const int64_t extent : e.shape) shape.push_back(extent);
      items.push_back({e.name, DType::f32, shape, bytes.back().data()});
      if (e.name != tensor) continue;
      auto* values = reinterpret_cast<float*>(bytes.back().data());
      std::fill_n(values, bytes.back().size() / sizeof(float), value);
    }
  }
  write_safetensors(real_file_system(), path, items, {{"format", "pt"}});
}

}  // namespace ingot::test
