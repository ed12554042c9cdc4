"use strict";
// The secret of a one-time link stands behind the #, so that it reaches no server's log: the form carries it instead.
const field = document.getElementById("f-secret");
if (location.hash.length > 1) {
  field.value = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname);
  field.form.requestSubmit();
}
