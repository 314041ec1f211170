// Fuzzes the small files of a foreign model; the first byte chooses one. config.json: any text is a model or
// an Error, and a model that a family can express writes and reads back alike. The index: names of plain
// files only.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "exchange/huggingface_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] % 2 == 0) {
      for (const auto& [tensor, file] : ingot::parse_weight_index(text, "fuzz"))
        if (file.find('/') != file.npos || file.find("..") != file.npos) std::abort();
      return 0;
    }
    const ingot::ModelConfig m = ingot::model_from_huggingface(text, "fuzz");
    const ingot::HuggingfaceLayout layout = ingot::huggingface_layout(m);
    ingot::HuggingfaceNotes notes;
    notes.original = text;
    const std::string written = ingot::huggingface_config(m, layout, notes);
    if (!ingot::architecture_differences(m, ingot::model_from_huggingface(written, "written")).empty())
      std::abort();
  } catch (const ingot::Error&) {
  }
  return 0;
}
