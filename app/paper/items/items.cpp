#include "paper/items.h"

namespace onestep::app::paper {

std::span<const ItemKind> item_kinds() { return {}; }

}  // namespace onestep::app::paper
