"""The page at ``/docs``: the OpenAPI document for people, without anything loaded from elsewhere.

Threading: a constant.
"""

from typing import Final

DOCS_HTML: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Blockyard API</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
h2{border-top:1px solid #ddd;padding-top:1rem;font:600 1.05rem ui-monospace,monospace}
.verb{background:#235;color:#fff;border-radius:4px;padding:.1rem .5rem;margin-right:.5rem}
pre{background:#f5f5f5;padding:.7rem;overflow:auto;border-radius:4px}small{color:#666}
</style></head><body><h1>Blockyard API</h1>
<p>Machine-readable: <a href="/openapi.json">/openapi.json</a></p><div id="api">Loading</div>
<script>
const text=(tag,value,parent,name)=>{const e=document.createElement(tag);e.textContent=value;
 if(name)e.className=name;parent.append(e);return e};
const shape=(schema,all,depth)=>{if(!schema)return null;if(schema.$ref)return depth>4?"...":
 shape(all[schema.$ref.split("/").pop()],all,depth+1);
 if(schema.enum)return schema.enum.join(" | ");if(schema.anyOf)return schema.anyOf.map(s=>shape(s,all,depth+1));
 if(schema.type==="array")return [shape(schema.items,all,depth+1)];
 if(schema.properties)return Object.fromEntries(Object.entries(schema.properties).map(([n,s])=>
  [n,s.description?[shape(s,all,depth+1),s.description]:shape(s,all,depth+1)]));
 return schema.type||"any"};
fetch("/openapi.json").then(r=>r.json()).then(doc=>{const root=document.getElementById("api");root.textContent="";
 const all=(doc.components||{}).schemas||{};
 for(const [path,verbs] of Object.entries(doc.paths))for(const [verb,op] of Object.entries(verbs)){
  const head=text("h2","",root);text("span",verb.toUpperCase(),head,"verb");head.append(path);
  text("p",op.description||op.summary||"",root);
  const body=op.requestBody&&op.requestBody.content["application/json"];
  if(body){text("small","Request",root);text("pre",JSON.stringify(shape(body.schema,all,0),null,2),root)}
  for(const [status,reply] of Object.entries(op.responses)){text("small",status+" "+reply.description,root);
   const json=reply.content&&(reply.content["application/json"]||Object.values(reply.content)[0]);
   if(json&&json.schema)text("pre",JSON.stringify(shape(json.schema,all,0),null,2),root)}}});
</script></body></html>
"""
