// SPDX-License-Identifier: Apache-2.0
// The types of uPlot's package, for the type checker (tools/page). The service sends the script (__init__.py).
import uPlot from 'uplot';
export default uPlot;
