// Figures to JSON.
#include "page/figure.h"

#include "page/json.h"

namespace onestep::app::page {

Json to_json(const std::vector<Figure>& figures) { return json_of(figures); }

}  // namespace onestep::app::page
