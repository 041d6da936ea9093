document.getElementById("wrong").hidden = location.search !== "?wrong";
