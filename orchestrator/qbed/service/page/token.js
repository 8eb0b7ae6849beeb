// SPDX-License-Identifier: Apache-2.0
// Takes the token from a link that `qbed serve --url` printed (#token=...), before other modules read the address.

if (location.hash.startsWith('#token=')) {
  sessionStorage.setItem('token', decodeURIComponent(location.hash.slice('#token='.length)));
  history.replaceState(null, '', location.pathname);
}
