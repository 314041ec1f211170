// See call_cost.h.
#include "infer/call_cost.h"

#include "models/stage.h"

namespace ingot {

CallCost call_cost(const Model& model, int64_t rows) {
  BatchLayout layout;
  layout.count = rows;
  layout.spans.push_back({0, rows, 0, nullptr, 0});
  const Tensor column(nullptr, {rows}, DType::i32, DeviceKind::null);
  CountingArena arena;
  TapeProfile work;
  Tape tape(arena, {.device = DeviceKind::null, .record = false, .profile = &work});
  Context context{tape, model.weights(), &layout, tape.leaf(column)};
  model.equip(context);
  StageForward stage(model.decoder(), whole_model(model.config()), context, tape.leaf(column));
  stage.head_input(0);
  CallCost cost{arena.peak_bytes(), 0};
  for (const auto& [op, p] : work) cost.flops += p.flops[0] / static_cast<double>(rows);
  return cost;
}

}  // namespace ingot
