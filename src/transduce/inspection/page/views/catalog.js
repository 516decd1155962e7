// Every view by its name; a saved page holds the name. A view is a function of data:
//
//   attentionView(root, data, live = null) -> { state(), restore(state), destroy() }
//
// `live` has the callbacks of the studio, and is null in a saved page. Add a view with one import and one line.
import { attentionView } from "./attention.js";
import { attributionView } from "./attribution.js";
import { beamTreeView } from "./beam-tree.js";
import { headSummaryView } from "./head-summary.js";
import { interventionView } from "./intervention.js";
import { lensView } from "./lens.js";
import { neuronView } from "./neuron.js";
import { translationView } from "./translation.js";

export const VIEWS = {
  attention: attentionView,
  attribution: attributionView,
  "beam-tree": beamTreeView,
  "head-summary": headSummaryView,
  intervention: interventionView,
  lens: lensView,
  neuron: neuronView,
  translation: translationView,
};
